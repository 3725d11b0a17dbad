from __future__ import annotations

import pytest

from pipetune.predicting.page_cache import hits


@pytest.mark.parametrize(
    ("cached", "second", "later"), [(0.39, 0.096, (0.15, 0.19)), (0.64, 0.27, (0.40, 0.52)), (0.89, 0.64, (0.70, 0.80))]
)
def test_hits_are_those_that_were_measured_under_a_memory_limit(
    cached: float, second: float, later: tuple[float, float]
) -> None:
    middle, low, high = hits(cached)
    assert low == pytest.approx(second, abs=0.015)
    assert high == cached
    assert later[0] - 0.06 <= middle <= later[1] + 0.06


def test_nothing_cached_has_no_hits_and_everything_has_all() -> None:
    assert hits(0.0) == (0.0, 0.0, 0.0)
    assert hits(1.0) == hits(2.0) == (1.0, 1.0, 1.0)
