from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.candidates.space import Space, canonical
from pipetune.records.sweep import Candidate

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
