from __future__ import annotations

from dataclasses import replace

from pipetune.records.explanation import FETCH, HAND_OVER, WITH_ACCELERATOR, Explanation, Part, Remedy, StageCost
from pipetune.report.explain_text import closing_line, explanation_lines, stage_rows, stage_table
from pipetune.report.line import Kind
from tests.unit.samples import sample

STAGES = (
    StageCost(stages=("fetch",), cpu_s_per_1000_samples=0.03, ci95=(-0.01, 0.07), samples_per_s=2000.0,
              rate_ci95=(1900.0, 2100.0)),
    StageCost(stages=("decode", "transform"), cpu_s_per_1000_samples=0.9, ci95=(0.8, 1.0), samples_per_s=2050.0,
              rate_ci95=(2000.0, 2100.0)),
    StageCost(stages=("hand_over",), cpu_s_per_1000_samples=-0.001, ci95=(-0.01, 0.01), samples_per_s=1e5,
              rate_ci95=(9e4, 1.1e5)),
)  # fmt: skip
FOUND = sample(
    Explanation, stages=STAGES, closes_frac=0.02, notes=("a note",), sentence="The cores set the pace.",
    evidence=("the accelerator takes 5,000 images/s",),
    parts=(sample(Part, name=WITH_ACCELERATOR, cpu_s_per_1000_samples=0.911),),
    remedies=(Remedy(change="num_workers 2 -> 4", samples_per_s=3900.0, how="predicted"),),
)  # fmt: skip


def test_a_row_for_each_stage_and_one_for_all() -> None:
    assert stage_rows(FOUND) == [
        ("reading files", "0.03 s ±0.04", "3.2 %", "2,000/s ±5.0 %"),
        ("decoding, cropping, resizing and normalising", "0.9 s ±0.1", "97 %", "2,050/s ±2.4 %"),
        ("handing batches over", "-0.001 s ±0.01", "0 %", "100,000/s ±10 %"),
        ("all stages", "0.929 s", "", ""),
    ]


def test_one_stage_needs_no_sum() -> None:
    assert len(stage_rows(replace(FOUND, stages=STAGES[:1]))) == 1


def test_the_answer_comes_first_and_the_remedies_last() -> None:
    lines = explanation_lines(FOUND)
    assert lines[0] == (Kind.HEADLINE, "The cores set the pace.")
    assert lines[1].text == "The accelerator takes 5,000 images/s."
    assert lines[-1].text == "  3,900/s  num_workers 2 -> 4 (predicted)"
    assert len(explanation_lines(replace(FOUND, remedies=()))) == 2


def test_it_says_that_the_stages_add_up() -> None:
    assert closing_line(FOUND) == (
        "The stages add up: the whole loader beside the accelerator takes 0.911 s per 1000 images, 2.0 % less than "
        "what was measured apart."
    )
    assert closing_line(replace(FOUND, closes_frac=0.2)) is None  # conclude() has a note of its own then
    assert closing_line(replace(FOUND, closes_frac=None)) is None
    assert closing_line(replace(FOUND, parts=())) is None


def test_bars_where_there_is_room() -> None:
    from io import StringIO

    from rich.console import Console

    def drawn(width: int, *, ascii: bool = False) -> str:
        console = Console(file=StringIO(), width=width)
        console.print(stage_table(FOUND, width, ascii=ascii))
        return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]

    assert "█" * 24 in drawn(160)
    assert "#" * 24 in drawn(160, ascii=True)
    assert "█" not in drawn(90)
    assert all(len(line) <= 60 for line in drawn(60).splitlines())


def test_stages_are_those_of_the_record() -> None:
    assert {FETCH, HAND_OVER} <= {stage for cost in STAGES for stage in cost.stages}
