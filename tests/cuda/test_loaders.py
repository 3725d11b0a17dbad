"""Loops whose copies are slow, over every loader: no batch is written again before it was read, none is pageable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda
from tests.photo_set import small_photos

#: In an epoch of the photographs below.
BATCHES = 8

#: What two loops have found, of the stand-in's counters and of the batches that arrived.
FOUND = """
import sys, warnings
import torch, pipetune
from tests.cuda.loops import *

def found_in(loop, loader, expected):
    before = counted()
    with loader:
        arrived = loop(loader)
        for index in range(torch.cuda.device_count()):
            if torch._C._cuda_hasPrimaryContext(index):
                torch.cuda.synchronize(index)
        after = counted()
    counts = {name: after[name] - before[name] for name in ("races", "h2d_pageable", "h2d_locked")}
    return {"wrong": wrong(arrived, expected), "batches": len(arrived), **counts}

found = {}
"""

#: The README's loop over each kind of loader, with each transfer, whether or not the candidate was measured with
#: page-locked memory. Copies take 3 to 12 ms each, so that the loop is many batches ahead of the device. Then batches
#: of 432 KiB, of which there is page-locked memory for very few, and not for a ring.
MATRIX = """
reference = {transfer: batches_of(sys.argv[1], transfer) for transfer in ("float32", "uint8")}
for kind in KINDS:
    for transfer in reference:
        for pin_memory in (False, True):
            loader = opened(sys.argv[1], kind, transfer=transfer, pin_memory=pin_memory)
            loader.normalise(torch.zeros(1, 3, 2, 2, dtype=torch.uint8, device="cuda"))  # makes its constants
            found[f"{kind} {transfer} {pin_memory}"] = found_in(train, loader, reference[transfer])

limited = {}
del loader
locked_bytes = counted()["locked_bytes"]
expected = batches_of(sys.argv[1], image_size=96)
for kind in REUSING:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        limited[kind] = found_in(train, opened(sys.argv[1], kind, image_size=96), expected)
    limited[kind]["told"] = [str(one.message) for one in told]
    limited[kind]["more_locked_bytes"] = counted()["locked_bytes"] - locked_bytes
    torch.ones(1, device="cuda")  # raises if the error is still there
print(json.dumps([found, limited]))
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_photos(tmp_path_factory.mktemp("cuda_loaders") / "photos", copies=8)


@pytest.fixture(scope="module", params=["staged", "deferred"])
def found(
    request: pytest.FixtureRequest, cuda_library: Path, tmp_path_factory: pytest.TempPathFactory, photos: Path
) -> list[dict[str, Any]]:
    place = tmp_path_factory.mktemp("matrix")
    env = fake_cuda.environment(cuda_library, place, copy_gbps=0.004, pageable=request.param, locked_mb=2)
    both: list[dict[str, Any]] = fake_cuda.run(FOUND + MATRIX, env, str(photos))
    return both


def test_batches_arrive_as_they_were_made(found: list[dict[str, Any]]) -> None:
    matrix, _ = found
    assert len(matrix) == 5 * 2 * 2
    assert {one["batches"] for one in matrix.values()} == {BATCHES}
    assert {name: one for name, one in matrix.items() if one["wrong"] or one["races"]} == {}


def test_a_step_copies_from_page_locked_memory_alone(found: list[dict[str, Any]]) -> None:
    matrix, _ = found
    copies = {name: (one["h2d_pageable"], one["h2d_locked"]) for name, one in matrix.items()}
    assert copies == dict.fromkeys(matrix, (0, 2 * BATCHES))


def test_without_page_locked_memory_batches_are_right_too(found: list[dict[str, Any]]) -> None:
    _, limited = found
    for kind, one in limited.items():
        assert (one["wrong"], one["races"]) == (0, 0), kind
        assert one["told"][0].startswith("cannot page-lock "), kind
        assert one["more_locked_bytes"] < 64 << 10, kind  # labels, whose memory torch keeps
    (told,) = limited["ring"]["told"]
    assert told.startswith("cannot page-lock 2.95 MiB for batches (out of memory), so copies to the GPU take longer")
    assert limited["ring"]["h2d_pageable"] >= BATCHES


#: The second of two devices, which is named and never made the current one; then loops of other kinds, a loader that is
#: not told which device its batches go to, and one with the mistake that all of this is to prevent.
DEVICES = """
import weakref
from pipetune.loaders.after_copies import AfterCopies
from pipetune.loaders.open_loader import open_loader
from pipetune.records.sweep import AcceleratorSpec
from tests.photo_set import scan, workload

expected = batches_of(sys.argv[1])
second = lambda loader: train(loader, "cuda:1")
for kind in KINDS:
    found[f"{kind} on the second"] = found_in(second, opened(sys.argv[1], kind, "cuda:1", pin_memory=True), expected)

accelerator = AcceleratorSpec(kind="cuda", name="GPU", device_index=1)
images = scan(sys.argv[1])
for kind in KINDS:
    measured = open_loader(candidate(kind, pin_memory=True), workload(accelerator=accelerator, image_size=32), images)
    with opened(sys.argv[1], kind, "cuda:1") as loader:
        both = [(type(one).__name__, *(tensor.is_pinned() for tensor in next(iter(one)))) for one in (measured, loader)]
        found[f"{kind} both"] = [both[0][1:], both[1][1:], type(measured) is type(loader._loader)]
    measured.close()
now = counted()
found["on the first"] = [now[name][0] for name in ("kernels", "device_bytes", "contexts")]

for kind in REUSING:
    loop = lambda loader: prefetch(loader, "cuda:1")
    found[f"{kind} on a side stream"] = found_in(loop, opened(sys.argv[1], kind, "cuda:1"), expected)
    found[f"{kind} not told where"] = found_in(second, opened(sys.argv[1], kind), expected)

AfterCopies.lend = lambda self, view, give_back, what: weakref.finalize(view, give_back, what)
for kind in REUSING:
    found[f"{kind} given back at once"] = found_in(second, opened(sys.argv[1], kind, "cuda:1"), expected)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def devices(cuda_library: Path, tmp_path_factory: pytest.TempPathFactory, photos: Path) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("devices")
    env = fake_cuda.environment(cuda_library, place, devices=2, copy_gbps=0.004)
    found: dict[str, Any] = fake_cuda.run(FOUND + DEVICES, env, str(photos))
    return found


@pytest.mark.parametrize("loop", ["on the second", "on a side stream", "not told where"])
def test_it_is_so_on_every_device_and_stream(devices: dict[str, Any], loop: str) -> None:
    for kind in ("ring", "threads", "in place"):
        one = devices[f"{kind} {loop}"]
        assert (one["wrong"], one["races"], one["h2d_pageable"]) == (0, 0, 0), kind


def test_nothing_happens_on_a_device_that_was_not_named(devices: dict[str, Any]) -> None:
    assert devices["on the first"] == [0, 0, 0]


@pytest.mark.parametrize("kind", ["processes", "ring", "threads", "inline", "in place"])
def test_what_is_opened_to_train_with_is_what_was_measured(devices: dict[str, Any], kind: str) -> None:
    assert devices[f"{kind} both"] == [[True, True], [True, True], True]


def test_a_slot_that_is_given_back_at_once_is_seen(devices: dict[str, Any]) -> None:
    for kind in ("ring", "threads", "in place"):
        one = devices[f"{kind} given back at once"]
        assert one["wrong"] > 0, kind
        assert one["races"] > 0, kind
