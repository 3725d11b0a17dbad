from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace

import pytest

from pipetune.candidates.settings import SETTINGS
from pipetune.candidates.space import Space, canonical
from pipetune.records.sweep import Candidate, from_dict

PLAIN = Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64)


@pytest.mark.parametrize(
    ("chosen", "meant"),
    [
        ({"loader": "threads", "reuse_buffers": True}, {"loader": "threads"}),
        ({"loader": "threads", "start_method": "spawn"}, {"loader": "threads"}),
        ({"loader": "threads", "channels_last": True}, {"loader": "threads", "channels_last": True}),
        ({"loader": "threads", "num_workers": 0}, {"num_workers": 0}),
        ({"num_workers": 0, "in_order": False, "start_method": "spawn"}, {"num_workers": 0}),
        ({"num_workers": 0, "reuse_buffers": True}, {"num_workers": 0, "reuse_buffers": True}),
        ({"channels_last": True}, {}),
        ({"channels_last": True, "reuse_buffers": True}, {"channels_last": True, "reuse_buffers": True}),
        ({"hw_decoder_load": 0.5}, {}),
        ({"backend": "dali", "hw_decoder_load": 0.5}, {"backend": "dali", "hw_decoder_load": 0.5}),
        ({"backend": "dali", "loader": "threads", "reuse_buffers": True, "in_order": False}, {"backend": "dali"}),
        ({"backend": "dali", "transfer": "uint8"}, {"backend": "dali", "transfer": "uint8"}),
        ({"backend": "torchvision", "loader": "threads"}, {"backend": "torchvision"}),
        ({"backend": "own", "transfer": "uint8", "loader": "threads"}, {"backend": "own"}),
        ({"backend": "own", "allocator": "glibc"}, {"backend": "own", "allocator": "glibc"}),
    ],
)
def test_a_setting_without_effect_is_as_usual(chosen: dict[str, object], meant: dict[str, object]) -> None:
    assert canonical(replace(PLAIN, **chosen)) == replace(PLAIN, **{"loader": "", **meant})  # type: ignore[arg-type]


def test_the_grid_varies_the_settings_and_has_each_candidate_once() -> None:
    space = Space(
        backends=("opencv", "dali"), workers=(0, 2), prefetch=(2,), batch_size=64, pin_memory=False,
        settings=(("loader", ("torch", "threads")), ("transfer", ("float32", "uint8"))),
    )  # fmt: skip
    grid = space.grid()
    # Without workers there are no threads; DALI has threads of its own.
    assert len(grid) == len(set(grid)) == 2 + 4 + 2
    fixed = replace(space, settings=(("transfer", ("uint8",)),))
    assert {candidate.transfer for candidate in fixed.grid()} == {"uint8"}
    assert space.candidate("opencv", 2, 2).transfer == "float32"
    assert space.candidate("opencv", 2, 2, transfer="uint8").transfer == "uint8"


@pytest.mark.parametrize("seed", range(20))
def test_the_grid_is_the_product_of_all_values(seed: int) -> None:
    draw = random.Random(seed)
    names = draw.sample(list(SETTINGS), 4)
    settings = tuple((name, tuple(draw.sample(SETTINGS[name].values, 2))) for name in names)
    space = Space(
        backends=("opencv", "dali", "torchvision", "own"), workers=(0, 1, 2), prefetch=(2, 4), batch_size=8,
        pin_memory=False, settings=settings,
    )  # fmt: skip
    everything = dict.fromkeys(
        space.candidate(backend, workers, prefetch, **dict(zip(names, values, strict=True)))
        for backend in space.backends
        for workers in space.workers
        if workers or backend != "dali"
        for prefetch in space.prefetch
        for values in itertools.product(*(values for _, values in settings))
    )
    assert space.grid() == tuple(everything)
    excluded = frozenset(list(everything)[::3])
    smaller = replace(space, excluded=excluded)
    assert set(smaller.grid()) == set(everything) - excluded
    assert all(space.has(one) and not smaller.has(one) for one in excluded)


def test_settings_of_stored_spaces_are_read() -> None:
    stored = {
        "backends": ["opencv"], "workers": [0, 2], "prefetch": [2], "batch_size": 8, "pin_memory": False,
        "settings": [["worker_kind", ["process", "thread"]], ["in_order", [True, False]]],
    }  # fmt: skip
    space = from_dict(Space, json.loads(json.dumps(stored)))
    assert space.settings == (("loader", ("torch", "threads")), ("in_order", (True, False)))
    assert {candidate.loader for candidate in space.grid()} == {"torch", "threads"}


def test_a_loader_that_cannot_augment_leaves_it_to_the_device() -> None:
    space = Space(
        backends=("opencv", "dali"), workers=(0, 2), prefetch=(2,), batch_size=64, pin_memory=False,
        settings=(("transforms_on", ("worker", "device")), ("transfer", ("float32", "uint8"))),
    )  # fmt: skip
    places = {(one.backend, one.num_workers, one.transforms_on) for one in space.grid()}
    assert places == {
        ("opencv", 0, "worker"), ("opencv", 0, "device"), ("opencv", 2, "worker"), ("opencv", 2, "device"),
        ("dali", 2, "device"),
    }  # fmt: skip
    assert all(space.canonical(one) == one for one in space.grid())
    basic = replace(space, settings=())
    assert {one.transforms_on for one in basic.grid()} == {"worker"}
