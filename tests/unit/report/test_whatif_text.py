from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from pipetune.records.prediction import Answer, Check, Prediction, Question, Reach, WhatIf
from pipetune.report.line import Kind
from pipetune.report.whatif_text import (
    HEADERS,
    answer_rows,
    answer_table,
    check_lines,
    machine_line,
    own_error_line,
    reach_lines,
    remarks_of,
)


def prediction(rate: float = 2000.0, demand: float = 5000.0) -> Prediction:
    return Prediction(
        samples_per_s=rate, interval90=(0.9 * rate, 1.1 * rate), demand_samples_per_s=demand, bound_by="cores",
        next_bound_by="accelerator", kind="one_factor",
    )  # fmt: skip


def check(rate: float, asked: Question, notes: tuple[str, ...] = ()) -> Check:
    return Check(
        question=asked, prediction=prediction(), samples_per_s=rate, ci95=(0.95 * rate, 1.05 * rate),
        base_samples_per_s=980.0, error_frac=2000 / rate - 1, notes=notes,
    )  # fmt: skip


ASKED = Answer(
    question=Question(cores=2.0), prediction=prediction(), notes=("with as many workers per core as now: 2",)
)
FOUND = WhatIf(
    candidate="pillow-w1-p2-b64", now=prediction(1000.0), measured_samples_per_s=1010.0, answers=(ASKED,), target=0.9,
    reach=(Reach(change="10 cores", prediction=prediction(4600.0)),),
)  # fmt: skip


def test_what_was_measured_comes_first() -> None:
    first, second = answer_rows(FOUND)
    assert first[:4] == ("now, as measured", "1,010/s", "", "20 %")
    assert second == ("2 cores", "2,000/s", "1,800 to 2,200", "40 %", "cores", "accelerator", "one change, up to twice")
    assert len(first) == len(second) == len(HEADERS)


def test_a_narrow_table_has_the_first_columns() -> None:
    for width, words in ((60, 5), (100, 6), (160, 7)):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(answer_table(FOUND, width))
        lines = console.export_text().splitlines()
        assert all(len(line) <= width for line in lines)
        text = "".join("".join(lines).split())
        assert "2,000/s" in text
        assert [word in text for word in ("one", "next")] == [words > 6, words > 5]


def test_what_is_not_known_is_said_once() -> None:
    refused = Answer(question=Question(workers=0), prediction=None, refused="DALI needs at least one worker")
    found = replace(FOUND, answers=(refused, refused), notes=("a note",))
    assert remarks_of(found) == ["a note", "not known: DALI needs at least one worker"]
    once = replace(found, answers=(refused,))
    assert remarks_of(once) == ["a note", "no workers: not known: DALI needs at least one worker"]


@pytest.mark.parametrize(
    ("rate", "words"), [(1950.0, "2.6 % too high, inside"), (2100.0, "4.8 % too low, inside"), (1000.0, "outside")]
)
def test_a_check_says_how_wrong_it_was(rate: float, words: str) -> None:
    found = replace(FOUND, answers=(replace(ASKED, check=check(rate, ASKED.question)),))
    assert words in check_lines(found)[0]
    assert "in place of" not in check_lines(found)[0]
    assert "measured again now: 980/s (the run: 1,010/s)" in str(machine_line(found))


def test_a_check_of_something_nearer_says_of_what() -> None:
    nearer = check(1950.0, Question(cores=1.0), ("with 1 core, as this machine has 1",))
    text = check_lines(replace(FOUND, answers=(replace(ASKED, check=nearer),)))[0]
    assert text.startswith("1 core: predicted 2,000/s")
    assert text.endswith("(in place of 2 cores: with 1 core, as this machine has 1)")


def test_nothing_checked_has_no_line() -> None:
    assert check_lines(FOUND) == []
    assert machine_line(FOUND) is None


def test_the_target_is_reached_or_what_would_reach_it() -> None:
    lines = reach_lines(FOUND)
    assert lines[0].kind == Kind.HEADLINE
    assert lines[1].text == "  10 cores: 4,600/s (4,140 to 5,060)"
    assert "Nothing that is known" in reach_lines(replace(FOUND, reach=()))[0].text
    assert "reached as it is" in reach_lines(replace(FOUND, measured_samples_per_s=4700.0))[0].text


def test_a_few_predictions_have_no_error_of_their_own() -> None:
    assert own_error_line(replace(FOUND, own_errors=(0.1,) * 4)) is None
    line = own_error_line(replace(FOUND, own_errors=(-0.01, 0.02, -0.03, 0.04, 0.2)))
    assert line is not None
    assert "half were off by less than 3.0 %, 90 % by less than 20 %" in line
