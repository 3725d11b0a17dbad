from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from pipetune.candidates.space import Space
from pipetune.report.sweep_text import failure_lines, ranking_table, verdict, warning_lines
from tests.fakes import outcome
from tests.unit.sweeping.test_result import BROKEN, CEILING, DEFAULT, TUNED, sweep_result


def rendered(result: object, width: int) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(ranking_table(result, width))  # type: ignore[arg-type]
    return [line.rstrip() for line in console.export_text().splitlines()]


#: A space that the default and one other candidate exhaust.
ONE = Space(backends=("opencv",), workers=(2,), prefetch=(2,), batch_size=64, pin_memory=False)


def test_the_verdict_states_ceiling_default_and_recommendation_with_numbers() -> None:
    text = "\n".join(verdict(sweep_result(CEILING, DEFAULT, TUNED)))
    assert "EMULATED v100 takes 1,250/s" in text
    assert "PyTorch's default (pillow, no workers) feeds it 500/s ±2.0 %, 40 % of that" in text
    assert "Recommended: opencv, 2 workers, prefetch 2 feeds it 1,200/s ±2.0 %, 96 % of that, 2.40x the default" in text
    assert "1.0 cores and 512 MiB" in text


def test_a_missed_target_says_why_and_what_would_have_to_change() -> None:
    best = outcome("opencv", 2, rate=600.0, cpu_busy_pct=98.0, cpu_s_per_1000_samples=3.3, cores_used=1.98)
    text = "\n".join(verdict(sweep_result(CEILING, DEFAULT, best, space=ONE)))
    assert "No candidate reaches the target share of 90 %" in text
    assert "budget" not in text
    assert "all 2 usable cores are busy decoding" in text
    assert "needs about 3.7 cores, 2 are usable" in text  # 0.9 x 1,250/s x 3.3 ms


@pytest.mark.parametrize(
    ("rate", "first"), [(600.0, "None of the candidates measured so far"), (1200.0, "Recommended")]
)
def test_a_spent_budget_is_no_end_of_the_search(rate: float, first: str) -> None:
    tried = outcome("opencv", 2, rate=rate, cpu_s_per_1000_samples=3.3, cores_used=1.98)
    result = sweep_result(CEILING, DEFAULT, tried, space=replace(ONE, workers=(1, 2)))
    assert not result.complete
    lines = verdict(result)
    assert any(line.startswith(first) for line in lines)
    assert any("the budget was spent before the search came to its end" in line for line in lines)
    assert not any("What would have to change" in line for line in lines)  # another decoder may do it
    interrupted = verdict(sweep_result(CEILING, DEFAULT, outcome("opencv", 2, rate=rate), stopped="interrupted"))
    assert "budget" not in "\n".join(interrupted)
    assert interrupted[-1] == "INTERRUPTED: the search had not come to its end."


def test_what_was_not_measured_beside_its_rivals_is_not_certain() -> None:
    beside = [replace(found, block=1) for found in (DEFAULT, TUNED)]
    for outcomes, said in (((DEFAULT, TUNED), True), ((DEFAULT, TUNED, *beside), False)):
        text = "\n".join(verdict(sweep_result(CEILING, *outcomes, space=ONE)))
        assert ("it was not measured a second time alongside its rivals and the default" in text) == said


def test_an_interval_that_reaches_below_the_target_is_pointed_out() -> None:
    close = outcome("opencv", 2, rate=1130.0)
    assert any("it may miss the target of 0.9" in line for line in verdict(sweep_result(CEILING, DEFAULT, close)))
    assert not any("reaches below" in line for line in verdict(sweep_result(CEILING, DEFAULT, TUNED)))


def test_interrupted_and_failed_say_so() -> None:
    stopped = sweep_result(CEILING, DEFAULT, stopped="interrupted")
    assert verdict(stopped)[-1].startswith("INTERRUPTED")
    failed = sweep_result(stopped="failed", message="no ceiling")
    assert any("FAILED: no ceiling" in line for line in verdict(failed))


@pytest.mark.parametrize("width", [48, 60, 80, 100, 140, 200])
def test_the_table_never_wraps_and_always_names_candidate_and_rate(width: int) -> None:
    lines = rendered(sweep_result(CEILING, DEFAULT, TUNED, BROKEN), width)
    assert max(len(line) for line in lines) <= width
    assert len([line for line in lines if "pillow, no workers" in line or "opencv, 2 workers" in line]) == 2
    assert "1,200/s ±2.0 %" in "\n".join(lines)


def test_emulated_utilisation_is_called_emulated_and_the_rows_are_marked() -> None:
    lines = rendered(sweep_result(CEILING, DEFAULT, TUNED), 160)
    assert "EMULATED util" in lines[0]
    assert any(line.startswith("> opencv") for line in lines)
    assert any(line.startswith("* pillow") for line in lines)


def test_failures_and_warnings_are_lines_of_their_own() -> None:
    noisy = outcome("torchvision", 1, warnings=("too loud",))
    result = sweep_result(CEILING, DEFAULT, noisy, BROKEN)
    assert failure_lines(result) == ["dali-w2-p2-b64 failed (killed, timed): gone; less"]
    assert warning_lines(result) == ["torchvision-w1-p2-b64: too loud"]


def test_a_candidate_measured_in_a_slow_moment_is_pointed_out() -> None:
    slow = outcome("torchvision", 2, machine_speed_before=100.0, machine_speed_after=100.0)
    lines = warning_lines(sweep_result(CEILING, DEFAULT, TUNED, outcome("opencv", 1), slow))
    assert lines == ["torchvision-w2-p2-b64: measured while the machine was -50 % off its usual speed in this sweep"]


def test_what_misses_a_target_beyond_what_counts_as_fed_is_not_called_fed() -> None:
    best = outcome("opencv", 2, rate=1205.0, accelerator_idle_frac=0.036, data_wait_frac=0.1)
    text = "\n".join(verdict(sweep_result(CEILING, DEFAULT, best, target=0.98, space=ONE)))
    assert "No candidate reaches the target share of 98 %" in text
    assert "falls short" not in text
