"""How ``benchmarks/search/search_regret.py`` judges a live recommendation by what is measured side by side with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.search.play import Played
from benchmarks.search.search_regret import Blocks, judged_by_blocks, reached
from pipetune.records.sweep import Candidate

BY_GRID = Played(regret=0.5, time_share=0.1, called_right=False, no_more_cores=False, near_cores=False, candidates=7)
OURS, FASTEST, LEANEST = (
    Candidate(backend="pillow", num_workers=workers, prefetch_depth=2, batch_size=64) for workers in (1, 4, 2)
)


def blocks(*shares: float, cores: float = 1.0) -> Blocks:
    return [(share, cores) for share in (shares * 6)[:6]]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((0.95,), True), ((0.90,), True), ((0.80,), False), ((0.95, 0.85), None), ((0.95, 0.0), False)],
)
def test_reached(shares: tuple[float, ...], expected: bool | None) -> None:
    assert reached(blocks(*shares)) is expected


def judged(stated: bool, ours: Blocks, fastest: Blocks, leanest: Blocks) -> Played:
    shown = {OURS: ours, FASTEST: fastest, LEANEST: leanest}
    return judged_by_blocks(BY_GRID, stated, shown, OURS)


def test_a_statement_is_right_where_it_holds_today_and_wrong_where_it_does_not() -> None:
    low, high = blocks(0.5), blocks(0.95)
    assert judged(True, low, high, low).called_right is True
    assert judged(False, low, high, low).called_right is False
    assert judged(True, low, low, low).called_right is False
    assert judged(False, low, low, low).called_right is True


def test_what_is_close_to_the_target_is_neither_right_nor_wrong() -> None:
    close = blocks(0.88, 0.93)
    for stated in (True, False):
        assert judged(stated, close, blocks(0.5), close).called_right is None
    assert judged(True, close, blocks(0.95), close).near_cores is None


def test_regret_is_against_the_fastest_of_them_and_stops_at_the_target() -> None:
    assert judged(True, blocks(0.45), blocks(1.0), blocks(0.9)).regret == pytest.approx(0.5)
    assert judged(True, blocks(0.93), blocks(1.0), blocks(0.9)).regret == 0.0
    assert judged(False, blocks(0.4), blocks(0.4), blocks(0.2)).regret == 0.0


def test_cores_are_compared_with_those_that_suffice_today() -> None:
    cheap, dear = blocks(0.95, cores=0.5), blocks(0.95, cores=1.4)
    assert judged(True, dear, dear, cheap).no_more_cores is False
    assert judged(True, dear, dear, cheap).near_cores is True, "one core more is not looked for"
    assert judged(True, blocks(0.95, cores=1.6), dear, cheap).near_cores is False
    assert judged(True, dear, dear, blocks(0.5, cores=0.5)).no_more_cores is True
    assert judged(True, blocks(0.5, cores=0.1), dear, cheap).near_cores is False, "it does not suffice"
    assert judged(False, blocks(0.5), blocks(0.5), blocks(0.5)).near_cores is None


def test_time_and_number_of_candidates_stay() -> None:
    found = judged(True, blocks(0.95), blocks(0.95), blocks(0.95))
    assert replace(found, regret=0.5, called_right=False, no_more_cores=False, near_cores=False) == BY_GRID
