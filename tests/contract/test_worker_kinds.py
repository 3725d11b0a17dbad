"""Every way to make batches gives the same batches, keeps those that are kept, and leaves nothing behind."""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.backends.contract import MEAN, STD, Batch
from pipetune.datasets.index import ImageSet
from pipetune.records import Candidate, Workload
from pipetune.registry import BACKENDS, default_backend
from pipetune.sampler.proc import tree_pids
from tests.bad_images import jpeg, without_tables
from tests.contract.test_backends import require
from tests.integration.commands import wait_until
from tests.photo_set import PHOTOS, candidate, scan, workload

torch = pytest.importorskip("torch", reason="the backends produce torch tensors")

OTHER_PILLOW = {"pillow": "pillow-simd", "pillow-simd": "pillow"}[default_backend()]
#: Those whose decoder is a function of ours, which all kinds of workers can call.
DECODERS = sorted(name for name, backend in BACKENDS.items() if not backend.in_process_workers and name != OTHER_PILLOW)
INLINE = {"reuse_buffers": True}
RING = {"reuse_buffers": True, "num_workers": 2, "prefetch_depth": 2}
THREADS = {"worker_kind": "thread", "num_workers": 2, "prefetch_depth": 2}
KINDS = {"inline": INLINE, "ring": RING, "threads": THREADS}


@pytest.fixture(autouse=True, scope="module", params=DECODERS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    require(request, name)
    return name


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, backend: str) -> dict[str, object]:
    if request.param == "threads" and not BACKENDS[backend].threads:
        pytest.skip("it starts threads of its own")
    found: dict[str, object] = KINDS[request.param]
    return found


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    processes, threads, shared = set(tree_pids(os.getpid())), set(threading.enumerate()), set(os.listdir("/dev/shm"))
    yield
    assert set(tree_pids(os.getpid())) <= processes
    # torch's queues end their threads by themselves, a moment later.
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert {name for name in set(os.listdir("/dev/shm")) - shared if f"_{os.getpid()}_" in name} == set()


def open_(chosen: Candidate, setting: Workload | None = None, images: ImageSet | None = None) -> object:
    module = importlib.import_module(BACKENDS[chosen.backend].module)
    return module.open_loader(chosen, setting or workload(image_size=64), images or scan(PHOTOS))


def batches(chosen: Candidate, count: int, setting: Workload | None = None) -> list[Batch]:
    loader = open_(chosen, setting)
    try:
        return list(itertools.islice(iter(loader), count))  # type: ignore[call-overload, no-any-return]
    finally:
        loader.close()  # type: ignore[attr-defined]


def test_it_gives_what_a_plain_dataloader_gives_and_what_is_kept_is_not_touched(
    backend: str, kind: dict[str, object]
) -> None:
    plain = candidate(backend, 0, 3)
    reference = batches(plain, 12)
    # Twelve are more than there is room for: none of them may be overwritten.
    ours = batches(replace(plain, **kind), 12)  # type: ignore[arg-type]
    for mine, theirs in zip(ours, reference, strict=True):
        assert torch.equal(mine.labels, theirs.labels)
        assert torch.equal(mine.images, theirs.images)
        assert mine.labels.dtype == torch.int64


def test_bytes_are_what_the_accelerator_normalises(backend: str, kind: dict[str, object]) -> None:
    chosen = replace(candidate(backend, 0, 3), **kind)  # type: ignore[arg-type]
    (floats,) = batches(chosen, 1)
    (bytes_,) = batches(replace(chosen, transfer="uint8"), 1)
    assert bytes_.images.dtype == torch.uint8
    assert bytes_.images.shape == (3, 3, 64, 64)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    # What is as near as rounding: OpenCV normalises before anything is rounded to a byte a second time.
    assert torch.allclose((bytes_.images / 255 - mean) / std, floats.images, atol=1e-5)


@pytest.mark.parametrize("transfer", ["float32", "uint8"])
def test_channels_last_is_an_order_in_memory_alone(backend: str, kind: dict[str, object], transfer: str) -> None:
    chosen = replace(candidate(backend, 0, 3), transfer=transfer, **kind)  # type: ignore[arg-type]
    (planes,) = batches(chosen, 1)
    (pixels,) = batches(replace(chosen, channels_last=True), 1)
    assert pixels.images.shape == planes.images.shape
    assert pixels.images.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(pixels.images.float(), planes.images.float(), atol=1e-5)


def test_a_file_that_does_not_decode_is_named(backend: str, kind: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(without_tables(jpeg()))
    loader = open_(replace(candidate(backend, 0, 1), **kind), images=scan(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"broken\.jpg"):
        next(iter(loader))  # type: ignore[call-overload]
    loader.close()  # type: ignore[attr-defined]


def test_closing_in_the_middle_ends_the_workers(backend: str, kind: dict[str, object]) -> None:
    loader = open_(replace(candidate(backend, 0, 2), **kind))  # type: ignore[arg-type]
    stream = iter(loader)  # type: ignore[call-overload]
    kept = next(stream)
    before = kept.images.clone()
    loader.close()  # type: ignore[attr-defined]
    loader.close()  # type: ignore[attr-defined]
    assert list(stream) == []
    assert torch.equal(kept.images, before)
    with pytest.raises(ValueError, match="closed"):
        next(iter(loader))  # type: ignore[call-overload]


def test_a_loader_that_is_forgotten_ends_its_workers(backend: str, kind: dict[str, object]) -> None:
    next(iter(open_(replace(candidate(backend, 0, 2), **kind))))  # type: ignore[arg-type, call-overload]


def test_batches_that_come_as_they_get_ready_are_the_same_ones(backend: str, kind: dict[str, object]) -> None:
    cold = workload(image_size=64, cache="cold")  # an epoch that ends
    chosen = replace(candidate(backend, 0, 1), **kind)  # type: ignore[arg-type]
    ordered = batches(chosen, 99, cold)
    unordered = batches(replace(chosen, in_order=False), 99, cold)
    assert sorted(float(b.images.sum()) for b in ordered) == sorted(float(b.images.sum()) for b in unordered)
    assert len(ordered) == len(scan(PHOTOS).images)


def test_a_killed_worker_process_is_told(backend: str) -> None:
    if backend != "opencv":
        pytest.skip("one decoder will do")
    before = set(tree_pids(os.getpid()))
    loader = open_(replace(candidate(backend, 0, 2), **RING))  # type: ignore[arg-type]
    stream = iter(loader)  # type: ignore[call-overload]
    next(stream)
    for pid in set(tree_pids(os.getpid())) - before:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="is killed by signal"):
        list(itertools.islice(stream, 20))
    loader.close()  # type: ignore[attr-defined]


#: In a process of its own: what starts the workers lives as long as the program that had it started.
OTHER_STARTS = """
from dataclasses import replace
from pipetune.backends.opencv import open_loader
from tests.photo_set import PHOTOS, candidate, scan, workload

def first(chosen):
    loader = open_loader(chosen, workload(image_size=64), scan(PHOTOS))
    batch = next(iter(loader)).images.clone()
    loader.close()
    return batch

if __name__ == "__main__":
    reference = first(candidate("opencv", 0, 3))
    for method, reuse in (("forkserver", True), ("spawn", False)):
        ours = first(replace(candidate("opencv", 1, 3), start_method=method, reuse_buffers=reuse))
        print(method, bool((ours == reference).all()))
"""


def test_other_ways_to_start_workers(backend: str, tmp_path: Path) -> None:
    if backend != "opencv":
        pytest.skip("one decoder will do")
    script = tmp_path / "script.py"
    script.write_text(OTHER_STARTS)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=100,
        env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["forkserver True", "spawn True"], done.stderr


def test_workers_that_end_with_the_epoch(backend: str) -> None:
    if backend != "opencv":
        pytest.skip("one decoder will do")
    images = scan(PHOTOS)
    each = len(images.images) // 2
    for reuse in (False, True):
        chosen = replace(candidate(backend, 1, 2), persistent_workers=False, reuse_buffers=reuse)
        loader = open_(chosen)
        stream = iter(loader)  # type: ignore[call-overload]
        found = set()
        for _ in range(3):
            list(itertools.islice(stream, each))
            found |= set(tree_pids(os.getpid()))
        loader.close()  # type: ignore[attr-defined]
        assert len(found - {os.getpid()}) >= 3
