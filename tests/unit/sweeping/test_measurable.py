from __future__ import annotations

import pytest

from pipetune.errors import PipetuneError
from pipetune.records.sweep import Failure, Goal
from pipetune.sweeping.measurable import require_achieved
from tests.fakes import outcome

NVML, GOODPUT = Goal(target=0.9, metric="nvml"), Goal(target=0.9, metric="goodput")


def test_without_any_utilisation_a_goal_of_it_is_given_up() -> None:
    with pytest.raises(PipetuneError, match="could not be measured") as caught:
        require_achieved(outcome(gpu_util_pct=None), NVML)
    assert caught.value.hint == "use --target-metric goodput"


def test_where_it_is_measured_or_not_asked_for_the_sweep_goes_on() -> None:
    require_achieved(outcome(gpu_util_pct=0.0), NVML)
    require_achieved(outcome(gpu_util_pct=None), GOODPUT)
    require_achieved(outcome(failure=Failure(kind="hung", phase="open", message="x")), NVML)
