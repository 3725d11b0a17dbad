"""What a loader's worker is doing, by its stack."""

from __future__ import annotations

import pytest

from pipetune.sampler.stacks import activity as act
from pipetune.sampler.stacks.activity import Frame, StackActivity, worker_activity
from tests.unit.sampler.stacks.stack_frames import QUEUE_GET, frame, lines, unqualified

WORKER_LOOP = (
    frame("_worker_loop", "torch/utils/data/_utils/worker.py"),
    frame("BaseProcess.run", "multiprocessing/process.py"),
)
FETCH = (frame("_MapDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py"), *WORKER_LOOP)
WORKER = {
    "waits for indices": (QUEUE_GET + WORKER_LOOP, act.WORKER_IDLE),
    "requests": (
        (
            frame("SSLSocket.read", "ssl.py"), frame("SocketIO.readinto", "socket.py"),
            frame("HTTPResponse.read", "http/client.py"), frame("get", "requests/api.py"),
            frame("MyDataset.__getitem__", "data.py"), *FETCH,
        ),
        act.FETCH_NETWORK,
    ),
    "boto3": (
        (
            frame("URLLib3Session.send", "botocore/httpsession.py"),
            frame("MyDataset.__getitem__", "data.py"), *FETCH,
        ),
        act.FETCH_NETWORK,
    ),
    "a pool of connections": (
        (
            frame("LifoQueue.get", "queue.py"), frame("HTTPConnectionPool._get_conn", "urllib3/connectionpool.py"),
            frame("MyDataset.__getitem__", "data.py"), *FETCH,
        ),
        act.FETCH_NETWORK,
    ),
    "Pillow": (
        (frame("ImageFile.load", "PIL/ImageFile.py"), frame("MyDataset.__getitem__", "data.py"), *FETCH), act.DECODE
    ),
    "torchvision": ((frame("resize", "torchvision/transforms/functional.py"), *FETCH), act.DECODE),
    "the data set's own code": ((frame("MyDataset.__getitem__", "data.py"), *FETCH), act.DECODE),
}  # fmt: skip


@pytest.mark.parametrize(("frames", "activity"), WORKER.values(), ids=list(WORKER))
@pytest.mark.parametrize("old", [False, True], ids=["", "Python 3.10"])
def test_a_workers_activity_is_recognised_by_its_stack(frames: tuple[Frame, ...], activity: str, old: bool) -> None:
    assert worker_activity(unqualified(frames) if old else frames).activity == activity


@pytest.mark.parametrize(
    ("line", "activity"),
    [
        ("data = file.read()", act.FETCH_DISK),
        ("with open(path, 'rb') as file:", act.FETCH_DISK),
        ("raw = np.fromfile(path, np.uint8)", act.FETCH_DISK),
        ("data = os.pread(fd, size, offset)", act.FETCH_DISK),
        ("part = connection.recv(65536)", act.FETCH_NETWORK),
        ("data = urllib.request.urlopen(url)", act.FETCH_NETWORK),
        ("image = cv2.imdecode(data, 1)", act.DECODE),
        ("self.already_read(x)", act.DECODE),
    ],
)
def test_a_built_in_function_of_a_worker_is_recognised_by_its_line(line: str, activity: str) -> None:
    frames = (frame("MyDataset.__getitem__", "data.py"), *FETCH)

    assert worker_activity(frames, lines(**{"MyDataset.__getitem__": line})).activity == activity


def test_a_loader_function_inside_torchvision_is_recognised_by_its_own_line() -> None:
    frames = (
        frame("load_it", "data.py"),
        frame("DatasetFolder.__getitem__", "torchvision/datasets/folder.py"),
        *FETCH,
    )

    assert worker_activity(frames, lines(load_it="data = file.read()")).activity == act.FETCH_DISK
    assert worker_activity(frames).activity == act.DECODE


def test_an_idle_workers_pipe_is_no_file() -> None:
    frames = (frame("Connection._recv", "multiprocessing/connection.py"), *QUEUE_GET[-1:], *WORKER_LOOP)

    assert worker_activity(frames, lines(**{"Connection._recv": "chunk = read(handle, remaining)"})).activity == (
        act.WORKER_IDLE
    )


def test_no_frames_are_no_error() -> None:
    assert worker_activity(()) == StackActivity(act.DECODE, "? (?:0)")
