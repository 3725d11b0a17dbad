from __future__ import annotations

import pytest

from pipetune.records.watch import EMULATED, LOADER_WAIT, RankLook
from pipetune.sampler.stacks.suspicion import LEAST_LOST, suspicious
from tests.watch_fakes import rank_look


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (rank_look(busy_frac=1 - 1.1 * LEAST_LOST), True),
        (rank_look(busy_frac=1 - 0.9 * LEAST_LOST), False),
        (rank_look(busy_frac=0.0), True),
        (rank_look(busy_frac=None), True),
        (rank_look(busy_frac=None, source=LOADER_WAIT), True),
        (rank_look(busy_frac=0.1, idle_now=False, source=EMULATED), False),
        (rank_look(busy_frac=0.99, idle_now=True, source=EMULATED), True),
    ],
)
def test_a_look_that_lost_time_is_suspicious(look: RankLook, expected: bool) -> None:
    assert suspicious(look) is expected
