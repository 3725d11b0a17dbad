"""Somebody else connects to the sockets of loader workers, and says nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.integration import commands

pytest.importorskip("torch", reason="what is tested handles tensors")

#: Batches that each worker has sent before, and that are asked for while somebody else is connected: more than workers
#: have made in advance.
BEFORE, AFTER = 8, 24
#: Trains with workers; goes on when it is sent a line.
TRAINS = f"""
import os, sys
import pipetune, torch
from pipetune.usercode.worker_start import WorkerStart

def batches(start_method):
    if start_method == "own":
        images = torch.utils.data.TensorDataset(torch.zeros(400, 3), torch.zeros(400))
        return torch.utils.data.DataLoader(images, 2, num_workers=2, worker_init_fn=WorkerStart(None, None, 0))
    chosen = pipetune.Candidate(
        backend="pillow", num_workers=2, prefetch_depth=2, batch_size=4, worker_kind="process", reuse_buffers=False,
        start_method=start_method,
    )
    return pipetune.open_loader(chosen, sys.argv[1], image_size=32)

def steps(start_method):
    loader = batches(start_method)
    while True:
        yield from loader

if __name__ == "__main__":
    stream = steps(sys.argv[2])
    for _ in range({BEFORE}):
        next(stream)
    print("trains", flush=True)
    sys.stdin.readline()
    for _ in range({AFTER}):
        next(stream)
    print("trained", flush=True)
    os._exit(0)
"""
#: Connects to all sockets of these workers, or in this folder; prints how many it could connect to, and how many not.
CONNECTS = """
import os, socket, sys
uid, folder, *workers = sys.argv[1:]
if int(uid):
    os.setgroups([]); os.setgid(int(uid)); os.setuid(int(uid))
held, refused = [], 0
for line in open("/proc/net/unix"):
    name = line.rstrip().rpartition(" ")[2]
    if name.startswith("@pipetune-") and name.split("-")[1] in workers or folder and name.startswith(folder):
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(name.replace("@", "\\0"))
            held.append(link)
        except PermissionError:
            refused += 1
print(len(held), refused, flush=True)
sys.stdin.read()
"""


#: One that is not root's.
NOBODY = 65534


def connected_meanwhile(folder: Path, photos: Path, start_method: str, uid: int) -> list[int]:
    """Train, and let somebody connect; how many connections there were, and how many were not possible."""
    script = folder / "train.py"
    script.write_text(TRAINS)
    with contextlib.ExitStack() as ends:
        # Not in pytest's folder: a socket's path has at most 107 bytes.
        temporary = ends.enter_context(tempfile.TemporaryDirectory(prefix="sockets-"))

        def start(*arguments: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, *arguments], env={**os.environ, "TMPDIR": temporary}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            ends.callback(process.communicate)
            ends.callback(process.kill)
            return process

        training = start(str(script), str(photos), start_method)
        assert training.stdout is not None
        assert training.stdout.readline() == "trains\n"
        workers = [str(child.pid) for child in commands.children(training.pid)]
        other = start("-S", "-c", CONNECTS, str(uid), temporary if start_method == "own" else "", *workers)
        assert other.stdout is not None
        counts = [int(word) for word in other.stdout.readline().split()]
        output, _ = training.communicate("go on\n", timeout=60)
        assert output == "trained\n"
        return counts


def need_root(uid: int) -> None:
    if uid and os.geteuid():
        pytest.skip("only root can become another user")


@pytest.mark.parametrize(
    ("start_method", "uid"),
    [
        ("fork", 0),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("fork", NOBODY), ("forkserver", 0), ("spawn", 0))),
    ],
)
def test_training_goes_on(tmp_path: Path, photos: Path, start_method: str, uid: int) -> None:
    need_root(uid)
    assert connected_meanwhile(tmp_path, photos, start_method, uid) == [2, 0]


def test_workers_of_a_loader_of_ones_own_are_not_to_be_reached_by_others(tmp_path: Path, photos: Path) -> None:
    need_root(NOBODY)
    held, refused = connected_meanwhile(tmp_path, photos, "own", NOBODY)
    assert held == 0
    assert refused >= 2
