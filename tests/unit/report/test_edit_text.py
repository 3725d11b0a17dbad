"""What is said where no edit is proven to be worth it."""

from __future__ import annotations

from dataclasses import replace

from pipetune.records.edit import LEANER, TOO_NOISY, UNPROVEN, Edit
from pipetune.records.sweep import Outcome
from pipetune.report.columns import Mark, mark_of
from pipetune.report.edit_text import may_help_line, proven_saving
from pipetune.report.html.sweep_page import name_of_chosen
from pipetune.report.line import Kind
from pipetune.report.script_text import to_do
from pipetune.report.sweep_text import conclusion_lines, to_be_set
from pipetune.sweeping.result import SweepResult, conclude
from pipetune.sweeping.result_json import to_json
from tests.fakes import outcome
from tests.unit.search.test_proof import GOAL, OTHER, OWN, SPACE, side_by_side
from tests.unit.sweeping.bench import PLAN

EDIT = Edit(
    key="script-w4-p2-b16",
    verdict=UNPROVEN,
    gain=1.04,
    gain_ci95=(0.9, 1.2),
    saved_cores=0.0,
    saved_memory_frac=0.0,
    blocks=2,
    more_blocks=9,
    more_s=180.0,
)


def concluded(outcomes: list[Outcome]) -> SweepResult:
    return conclude(
        outcomes,
        goal=GOAL,
        space=SPACE,
        accelerator=PLAN.conditions.workload.accelerator,
        dataset={"name": "script:train.py"},
        workload={},
        host={},
        usable_cores=4,
        seconds=1.0,  # type: ignore[typeddict-item]
    )


def headline(result: SweepResult) -> str:
    return next(line.text for line in conclusion_lines(result) if line.kind is Kind.HEADLINE)


def texts(result: SweepResult) -> str:
    return "\n".join(line.text for line in conclusion_lines(result))


def test_what_is_not_proven_leaves_the_script_as_it_is() -> None:
    result = concluded(side_by_side((400.0, 420.0), half=0.1))
    assert result.stays
    assert result.recommended is result.baseline
    assert headline(result) == (
        "Leave your script as it is (2 workers, prefetch 2): no other setting that was measured is proven to be worth "
        "a change."
    )
    said = texts(result)
    assert "What may help: 4 workers, prefetch 2, which may bring up to" in said
    assert "more of measuring would tell (--resume with --blocks" in said
    assert "No candidate reaches the target of 90 %" in said
    assert "Recommended" not in said
    assert to_do(result, "RUN") == []
    assert not to_be_set(result)
    assert result.recommended is not None
    assert mark_of(result, result.recommended) is Mark.AS_IT_IS
    assert name_of_chosen(result) == "Left as it is"
    stored = to_json(result)
    assert stored["recommended"]["key"] == OWN.key
    assert stored["edit"]["key"] == OTHER.key
    assert stored["edit"]["verdict"] == UNPROVEN


def test_noise_is_the_headline_where_nothing_can_be_told() -> None:
    result = concluded(side_by_side((400.0, 416.0), half=0.6))
    assert headline(result) == (
        "Too noisy to tell whether 4 workers, prefetch 2 is faster. Leave your script as it is (2 workers, prefetch 2)."
    )


def test_a_gain_whose_interval_is_too_wide_to_trust_is_not_said_to_be_untold() -> None:
    edit = Edit(
        key=OTHER.key,
        verdict=TOO_NOISY,
        gain=2.8,
        gain_ci95=(1.3, 5.9),
        saved_cores=0.0,
        saved_memory_frac=0.0,
        blocks=2,
        more_blocks=1,
        more_s=20.0,
    )
    result = as_stays(edit)
    assert headline(result).startswith("Too noisy to be sure that 4 workers, prefetch 2 is faster.")
    assert "too uncertain itself to prove a gain" in texts(result)


def test_a_candidate_that_reaches_the_target_without_proof_is_named_as_one_that_does() -> None:
    result = concluded(side_by_side((400.0, 420.0), half=0.1))
    assert result.stays
    reaches = replace(result, goal=replace(result.goal, target=0.415))
    assert "Your script as it is misses the target of 42 %" in texts(reaches)
    assert "; 4 workers, prefetch 2 reaches it as measured." in texts(reaches)
    assert "No candidate reaches" not in texts(reaches)


def test_what_stays_as_it_is_has_its_own_mark_though_it_reaches_the_target() -> None:
    result = concluded(side_by_side((400.0, 420.0), half=0.1))
    result = replace(result, goal=replace(result.goal, target=0.2))
    assert result.recommended is not None
    assert mark_of(result, result.recommended) is Mark.AS_IT_IS


def test_a_proven_gain_is_recommended_with_its_interval() -> None:
    result = concluded(side_by_side((400.0, 520.0)))
    assert not result.stays
    assert result.recommended is not None
    assert result.recommended.candidate == OTHER
    assert result.edit is not None
    assert result.speedup_ci95 == result.edit.gain_ci95
    assert "1.30 times your script as it is (" in texts(result)


def as_stays(edit: Edit, untuned_name: str = "your script as it is") -> SweepResult:
    return replace(concluded(side_by_side((400.0, 420.0), half=0.1)), edit=edit, untuned_name=untuned_name)


def test_how_long_a_measurement_takes_that_tells() -> None:
    assert may_help_line(as_stays(EDIT)).text == (
        "What may help: 4 workers, prefetch 2, which may bring up to 20 %: 1.04 times your script as it is (0.90 to "
        "1.20). About 3 min 00 s more of measuring would tell (--resume with --blocks 9)."
    )
    slower = may_help_line(as_stays(replace(EDIT, gain=0.9, gain_ci95=(0.7, 1.2)))).text
    assert slower.startswith(
        "Nothing that was measured points to a gain; the nearest is 4 workers, prefetch 2: 0.90 times"
    )
    noisy = may_help_line(as_stays(replace(EDIT, verdict=TOO_NOISY, gain_ci95=(0.4, 9.0)))).text
    assert noisy.startswith("What may help: 4 workers, prefetch 2: 1.04 times your script as it is (0.40 to 9.00). ")
    long = may_help_line(as_stays(replace(EDIT, more_blocks=900, more_s=18_000.0))).text
    assert long.endswith("A measurement that tells would take more than an hour.")
    many = may_help_line(as_stays(replace(EDIT, more_blocks=30, more_s=600.0))).text
    assert "--blocks" not in many, "which takes 20 at most"
    noisy = may_help_line(as_stays(replace(EDIT, verdict=TOO_NOISY, more_blocks=None, more_s=None))).text
    assert noisy.endswith("repeat it when the machine is quiet.")


def test_what_is_too_small_to_be_worth_a_measurement() -> None:
    small = replace(EDIT, gain=1.01, gain_ci95=(0.95, 1.07), more_blocks=None, more_s=None)
    assert may_help_line(as_stays(small)).text == (
        "What may help: 4 workers, prefetch 2, by 7.0 % at most: 1.01 times your script as it is (0.95 to 1.07)."
    )
    slower = replace(small, gain=0.8, gain_ci95=(0.7, 0.9))
    assert may_help_line(as_stays(slower, "PyTorch's default")).text == (
        "The nearest, 4 workers, prefetch 2, is no faster: 0.80 times the default (0.70 to 0.90)."
    )


def test_a_saving_is_named_with_what_it_costs() -> None:
    saving = replace(EDIT, saved_cores=1.4, saved_memory_frac=0.3)
    assert (
        "It saves 1.4 cores and 30 % of the memory, and may lose more than 2.0 %"
        in may_help_line(as_stays(saving)).text
    )
    assert proven_saving(as_stays(replace(saving, verdict=LEANER))) == (
        "; it saves 1.4 cores and 30 % of the memory and is proven to lose no more than 2.0 %"
    )
    assert proven_saving(as_stays(saving)) == ""


def test_a_candidate_that_the_options_force_is_said_to_be_unproven() -> None:
    space = replace(SPACE, workers=(4,))
    result = conclude(
        side_by_side((400.0, 404.0), half=0.1),
        goal=GOAL,
        space=space,
        accelerator=PLAN.conditions.workload.accelerator,
        dataset={"name": "x"},
        workload={},
        host={},
        usable_cores=4,
        seconds=1.0,  # type: ignore[typeddict-item]
    )
    assert not result.stays
    assert any("it is not proven to be faster than your script as it is" in doubt for doubt in result.doubts)


def test_all_that_the_accelerator_can_take_is_said_in_words() -> None:
    fed = [outcome("pillow", 0, rate=1000.0, ceiling=1000.0, role="baseline", goodput_ci95=(0.99, 1.0))]
    plain = replace(SPACE, untuned=replace(fed[0].candidate), workers=(0, 1), backends=("pillow",))
    result = conclude(
        fed,
        goal=GOAL,
        space=plain,
        accelerator=PLAN.conditions.workload.accelerator,
        dataset={"name": "x"},
        workload={},
        host={},
        usable_cores=4,
        seconds=1.0,  # type: ignore[typeddict-item]
    )
    assert "(as fast as with batches that are always ready, within the measurement error)" in texts(result)
