from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.report.comparison_text import comparison_lines
from pipetune.report.line import Kind, Line
from pipetune.runs.comparison import compare
from pipetune.runs.load import load
from pipetune.runs.run import Run
from tests.fakes import outcome
from tests.run_folders import CEILING, DEFAULT, TUNED, sweep_folder, watch_folder
from tests.watch_fakes import verdict, window


def lines(before: Run, after: Run) -> list[Line]:
    return list(comparison_lines(compare(before, after), before, after))


def about(found: list[Line], words: str) -> Line:
    (line,) = [line for line in found if words in line.text]
    return line


def test_what_they_do_not_share_is_one_line_with_counts(tmp_path: Path) -> None:
    many = [outcome(backend, workers, rate=100.0) for backend in ("pillow", "dali") for workers in range(1, 21)]
    before = load(sweep_folder(tmp_path / "before", [CEILING, DEFAULT, TUNED]))
    after = load(sweep_folder(tmp_path / "after", [CEILING, DEFAULT, *many, outcome("spdl", 1, rate=9.0)]))

    line = about(lines(before, after), "not in both")
    assert line.text == (
        "not in both: (opencv, 2 workers, prefetch 2) only in before; "
        "41 candidates (pillow 20, dali 20, spdl 1) only in after"
    )


def test_small_rates_keep_their_decimals(tmp_path: Path) -> None:
    runs = [
        load(sweep_folder(tmp_path / name, [CEILING, outcome("pillow", 0, rate=rate, role="baseline")]))
        for name, rate in (("before", 0.4), ("after", 99.0))
    ]
    assert "0.4/s (0.4..0.4) -> 99.0/s (97.0..101)" in about(lines(*runs), "pillow, no workers:").text


def test_a_run_given_as_the_current_folder_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(sweep_folder(tmp_path / "before", [CEILING, DEFAULT, TUNED]))
    monkeypatch.chdir(sweep_folder(tmp_path / "after", [CEILING, DEFAULT, outcome("spdl", 1, rate=9.0)]))
    assert about(lines(before, load(".")), "not in both").text.endswith("only in after")


def test_ranks_that_only_one_has_are_counted(tmp_path: Path) -> None:
    one = window(verdicts=(verdict(rank=0),))
    four = window(verdicts=tuple(verdict(rank=rank) for rank in range(4)))
    runs = [load(watch_folder(tmp_path / name, [found])) for name, found in (("one", one), ("four", four))]

    found = lines(*runs)
    assert about(found, "not in both").text == "not in both: 3 ranks only in four"
    assert about(found, "rank0").kind is Kind.DETAIL


def test_a_difference_beyond_the_intervals_is_a_headline(tmp_path: Path) -> None:
    slower = outcome("opencv", 2, rate=1000.0)
    before = load(sweep_folder(tmp_path / "before", [CEILING, DEFAULT, TUNED]))
    after = load(sweep_folder(tmp_path / "after", [CEILING, DEFAULT, slower]))

    found = lines(before, after)
    assert [line.text.partition(":")[0] for line in found if line.kind is Kind.HEADLINE] == [
        "opencv, 2 workers, prefetch 2"
    ]
    assert about(found, "pillow, no workers").kind is Kind.DETAIL


def test_the_same_candidate_measured_again_is_the_same_recommendation(tmp_path: Path) -> None:
    again = outcome("opencv", 2, rate=1240.0, attempt=2)
    before = load(sweep_folder(tmp_path / "before", [CEILING, DEFAULT, TUNED]))
    after = load(sweep_folder(tmp_path / "after", [CEILING, DEFAULT, TUNED, again]))

    assert about(lines(before, after), "recommended").text == "recommended in both: opencv, 2 workers, prefetch 2"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("workers", (0, 2), "0,2"), ("fix", (("channels_last", True), ("transfer", "uint8")),
                                     "channels_last=yes,transfer=uint8"),
        ("vary", (), "none"), ("vary", None, "-"), ("seed", 7, "7"),
    ],
)  # fmt: skip
def test_options_are_shown_as_they_are_written(tmp_path: Path, name: str, value: object, shown: str) -> None:
    from dataclasses import replace

    before = load(sweep_folder(tmp_path / "before", [CEILING, DEFAULT]))
    after = replace(before, info={**before.info, "options": {**before.info["options"], name: value}})
    before = replace(before, info={**before.info, "options": {**before.info["options"], name: "?"}})
    found = compare(before, after)
    changed = [change for change in found.changes if change.name == name]
    assert len(changed) == 1
    assert about(list(comparison_lines(found, before, after)), f"{name} ").text.endswith(f"-> {shown}")
