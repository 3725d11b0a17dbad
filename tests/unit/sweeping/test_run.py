from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipetune.sweeping.result import SweepResult
from pipetune.sweeping.run import Ended, exit_code


@pytest.mark.parametrize(
    ("stopped", "status", "code"),
    [
        (0, "target_met", 0),
        (0, "target_missed", 0),
        (0, "failed", 1),  # all that was measured takes more memory than is granted
        (1, "failed", 1),
        (130, "interrupted", 130),
    ],
)
def test_a_sweep_that_recommends_nothing_has_failed(stopped: int, status: str, code: int) -> None:
    result: Any = SimpleNamespace(status=status)

    assert exit_code(Ended(outcomes=[], exit_code=stopped), cast(SweepResult, result)) == code
