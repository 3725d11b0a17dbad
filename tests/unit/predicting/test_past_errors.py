from __future__ import annotations

import pytest

from pipetune.predicting.past_errors import PAST, usual_error
from pipetune.records.prediction import KINDS, ONE_FACTOR


@pytest.mark.parametrize("kind", KINDS)
def test_without_errors_of_its_own_those_of_the_benchmark_count(kind: str) -> None:
    assert usual_error(kind) == usual_error(kind, [0.5, 0.5]) == PAST[kind][0]


def test_many_errors_of_a_run_outweigh_those_of_the_benchmark() -> None:
    worse = usual_error(ONE_FACTOR, [0.3] * 10)
    assert PAST[ONE_FACTOR][0] < worse < 0.3
    assert worse < usual_error(ONE_FACTOR, [0.3] * 400) < 0.3
    assert usual_error(ONE_FACTOR, [-0.01] * 400) < PAST[ONE_FACTOR][0]
