"""Every way to make batches gives the same batches with every decoder, and keeps those that are kept."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.datasets.index import ImageSet
from pipetune.loaders.contract import Batch
from pipetune.loaders.open_loader import open_loader
from pipetune.machine.proc import tree_pids
from pipetune.records.imagenet import MEAN, STD
from pipetune.records.sweep import Candidate, Workload
from pipetune.registry import BACKENDS, default_backend
from tests.bad_images import jpeg, without_tables
from tests.contract.test_backends import require
from tests.integration.commands import wait_until
from tests.photo_set import PHOTOS, candidate, scan, workload

torch = pytest.importorskip("torch", reason="the backends produce torch tensors")

OTHER_PILLOW = {"pillow": "pillow-simd", "pillow-simd": "pillow"}[default_backend()]
#: Those whose decoder is a function of ours, which all kinds of workers can call.
DECODERS = sorted(name for name, backend in BACKENDS.items() if backend.loader is None and name != OTHER_PILLOW)
INLINE = {"reuse_buffers": True}
RING = {"reuse_buffers": True, "num_workers": 2, "prefetch_depth": 2}
THREADS = {"loader": "threads", "num_workers": 2, "prefetch_depth": 2}
KINDS = {"inline": INLINE, "ring": RING, "threads": THREADS}


@pytest.fixture(autouse=True, scope="module", params=DECODERS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    require(request, name)
    return name


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, backend: str) -> dict[str, object]:
    if request.param == "threads" and not BACKENDS[backend].releases_gil:
        pytest.skip("it starts threads of its own")
    found: dict[str, object] = KINDS[request.param]
    return found


@contextlib.contextmanager
def nothing_stays_behind() -> Iterator[None]:
    """No process, thread or shared memory that was not there before."""
    processes, threads, shared = set(tree_pids(os.getpid())), set(threading.enumerate()), set(os.listdir("/dev/shm"))
    yield
    assert set(tree_pids(os.getpid())) <= processes
    # torch's queues end their threads by themselves, a moment later.
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert {name for name in set(os.listdir("/dev/shm")) - shared if f"_{os.getpid()}_" in name} == set()


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    with nothing_stays_behind():
        yield


def open_(chosen: Candidate, setting: Workload | None = None, images: ImageSet | None = None) -> object:
    return open_loader(chosen, setting or workload(image_size=64), images or scan(PHOTOS))


def batches(chosen: Candidate, count: int, setting: Workload | None = None) -> list[Batch]:
    loader = open_(chosen, setting)
    try:
        return list(itertools.islice(iter(loader), count))  # type: ignore[call-overload, no-any-return]
    finally:
        loader.close()  # type: ignore[attr-defined]


def test_its_batches_are_those_of_a_plain_dataloader_and_what_is_kept_is_not_touched(
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


def test_bytes_are_what_the_accelerator_normalises(backend: str) -> None:
    chosen = candidate(backend, 0, 3)
    (floats,) = batches(chosen, 1)
    (bytes_,) = batches(replace(chosen, transfer="uint8"), 1)
    assert bytes_.images.dtype == torch.uint8
    assert bytes_.images.shape == (3, 3, 64, 64)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    # What is as near as rounding: OpenCV normalises before anything is rounded to a byte a second time.
    assert torch.allclose((bytes_.images / 255 - mean) / std, floats.images, atol=1e-5)


@pytest.mark.parametrize("transfer", ["float32", "uint8"])
def test_channels_last_is_an_order_in_memory_alone(backend: str, transfer: str) -> None:
    chosen = replace(candidate(backend, 0, 3), transfer=transfer, reuse_buffers=True)
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
