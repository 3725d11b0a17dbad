from __future__ import annotations

import pytest

from pipetune.errors import PipetuneError
from pipetune.records.sweep import Failure, Goal
from pipetune.sweeping.measurable import require_achieved
from tests.fakes import outcome

NVML, GOODPUT = Goal(target=0.9, metric="nvml"), Goal(target=0.9, metric="goodput")
WITHOUT, WITH = outcome(gpu_util_pct=None), outcome(gpu_util_pct=0.0)


@pytest.mark.parametrize(
    ("warnings", "why"),
    [
        ((), "as for a slice of a GPU"),
        (("slow", "no GPU readings: NVML is not installed"), "NVML is not installed"),
        (("no GPU utilisation: NVML's values cover 0.2 of its 1.5 s",), "NVML's values cover 0.2 of its 1.5 s"),
    ],
)
def test_without_any_utilisation_a_goal_of_it_is_given_up_with_the_reason(warnings: tuple[str, ...], why: str) -> None:
    with pytest.raises(PipetuneError, match=f"could not be measured: .*{why}") as caught:
        require_achieved([outcome(gpu_util_pct=None, warnings=warnings)], NVML)
    assert caught.value.hint == "use --target-metric goodput"


def test_where_it_is_measured_or_not_asked_for_the_sweep_goes_on() -> None:
    require_achieved([], NVML)
    require_achieved([WITH], NVML)
    require_achieved([WITH, WITHOUT], NVML)
    require_achieved([WITHOUT], GOODPUT)
    require_achieved([outcome(failure=Failure(kind="hung", phase="open", message="x"))], NVML)
