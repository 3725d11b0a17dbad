"""How loader workers live and end, with one decoder: what decodes does not matter here."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.machine.proc import tree_pids
from tests import ROOT
from tests.contract.test_worker_kinds import KINDS, RING, batches, nothing_stays_behind, open_
from tests.photo_set import PHOTOS, candidate, scan, workload

torch = pytest.importorskip("torch", reason="the backends produce torch tensors")

BACKEND = "opencv"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> dict[str, object]:
    found: dict[str, object] = KINDS[request.param]
    return found


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    with nothing_stays_behind():
        yield


def test_bytes_come_through_every_kind(kind: dict[str, object]) -> None:
    chosen = replace(candidate(BACKEND, 0, 3), transfer="uint8")
    (plain,) = batches(chosen, 1)
    (ours,) = batches(replace(chosen, **kind), 1)  # type: ignore[arg-type]
    assert ours.images.dtype == torch.uint8
    assert torch.equal(ours.images, plain.images)


def test_closing_in_the_middle_ends_the_workers(kind: dict[str, object]) -> None:
    loader = open_(replace(candidate(BACKEND, 0, 2), **kind))  # type: ignore[arg-type]
    stream = iter(loader)  # type: ignore[call-overload]
    kept = next(stream)
    before = kept.images.clone()
    loader.close()  # type: ignore[attr-defined]
    loader.close()  # type: ignore[attr-defined]
    assert list(stream) == []
    assert torch.equal(kept.images, before)
    with pytest.raises(ValueError, match="closed"):
        next(iter(loader))  # type: ignore[call-overload]


def test_a_loader_that_is_forgotten_ends_its_workers(kind: dict[str, object]) -> None:
    next(iter(open_(replace(candidate(BACKEND, 0, 2), **kind))))  # type: ignore[arg-type, call-overload]


def test_batches_that_come_as_they_get_ready_are_the_same_ones(kind: dict[str, object]) -> None:
    cold = workload(image_size=64, cache="cold")  # an epoch that ends
    chosen = replace(candidate(BACKEND, 0, 1), **kind)  # type: ignore[arg-type]
    ordered = batches(chosen, 99, cold)
    unordered = batches(replace(chosen, in_order=False), 99, cold)
    assert sorted(float(b.images.sum()) for b in ordered) == sorted(float(b.images.sum()) for b in unordered)
    assert len(ordered) == len(scan(PHOTOS).images)


def test_a_killed_worker_process_is_reported() -> None:
    before = set(tree_pids(os.getpid()))
    loader = open_(replace(candidate(BACKEND, 0, 2), **RING))  # type: ignore[arg-type]
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
from pipetune.loaders.open_loader import open_loader
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


@pytest.mark.slow
def test_other_ways_to_start_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(OTHER_STARTS)
    root = str(ROOT)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=100,
        env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["forkserver True", "spawn True"], done.stderr


def test_workers_that_end_with_the_epoch() -> None:
    images = scan(PHOTOS)
    each = len(images.images) // 2
    for reuse in (False, True):
        chosen = replace(candidate(BACKEND, 1, 2), persistent_workers=False, reuse_buffers=reuse)
        loader = open_(chosen)
        stream = iter(loader)  # type: ignore[call-overload]
        found = set()
        for _ in range(3):
            list(itertools.islice(stream, each))
            found |= set(tree_pids(os.getpid()))
        loader.close()  # type: ignore[attr-defined]
        assert len(found - {os.getpid()}) >= 3
