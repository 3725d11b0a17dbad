from __future__ import annotations

from dataclasses import replace

from pipetune.records.sweep import Outcome
from pipetune.report.notices_text import notice_lines
from tests.unit.sweeping.test_result import CEILING, DEFAULT, TUNED, sweep_result


def at_speed(outcome: Outcome, before: float, after: float) -> Outcome:
    assert outcome.measurement is not None
    warnings = ("the machine itself changed speed",) if before != after else ("the page cache was left as it is",)
    m = replace(outcome.measurement, machine_speed_before=before, machine_speed_after=after, warnings=warnings)
    return replace(outcome, measurement=m)


DISTURBED = sweep_result(
    at_speed(CEILING, 200.0, 300.0), at_speed(DEFAULT, 200.0, 200.0), at_speed(TUNED, 200.0, 120.0)
)


def test_what_the_machine_did_is_one_line() -> None:
    (line,) = notice_lines(DISTURBED, verbose=False)
    assert line.text.startswith("the machine's speed changed in 2 of 3 measurements, by up to 50 %: ")
    assert line.text.endswith("(--verbose names them)")


def test_each_warning_is_told_where_it_is_asked_for() -> None:
    texts = [line.text for line in notice_lines(DISTURBED)]
    assert len(texts) > 1
    assert any("page cache" in text for text in texts)


def test_a_quiet_machine_needs_no_line_and_heat_is_told() -> None:
    quiet = sweep_result(*(at_speed(outcome, 200.0, 200.0) for outcome in (CEILING, DEFAULT, TUNED)))
    assert notice_lines(quiet, verbose=False) == []
    assert TUNED.measurement is not None
    hot = replace(TUNED, measurement=replace(TUNED.measurement, gpu_slowed_pct=40.0))
    (line,) = notice_lines(sweep_result(CEILING, DEFAULT, hot), verbose=False)
    assert line.text.startswith("heat or the hardware lowered the GPU's clocks in 1 of 3 measurements")
