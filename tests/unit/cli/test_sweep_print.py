from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from pipetune.cli.sweep_print import print_result, print_script, print_settings, print_summary
from pipetune.datasets.index import ImageSet
from pipetune.records.written import WrittenFiles
from pipetune.report.code import settings_for
from pipetune.report.script_text import to_do
from pipetune.runs.load import load
from pipetune.sweeping.result import SweepResult
from pipetune.sweeping.stored import sweep_result as stored_result
from tests import ROOT
from tests.fakes import outcome
from tests.unit.report.test_script_text import SUMMARY
from tests.unit.sweeping.test_result import CEILING, DEFAULT, TUNED, sweep_result


def narrow() -> tuple[Console, io.StringIO]:
    """A terminal on which nothing that may be pasted fits into a line."""
    stream = io.StringIO()
    return Console(file=stream, force_terminal=True, color_system=None, width=40, height=20), stream


def test_what_may_be_pasted_is_never_cut() -> None:
    console, stream = narrow()
    result = stored_result(load(ROOT / "benchmarks" / "results" / "examples" / "script"))
    print_script(console, result, Path("/runs/script"))
    shown = stream.getvalue().splitlines()
    wanted = to_do(result, "/runs/script")
    assert max(map(len, wanted)) > 40
    assert shown[-len(wanted) :] == wanted
    assert max(map(len, shown[: -len(wanted)])) <= 40  # sentences are set for the terminal


def test_files_are_named_where_nothing_was_measured() -> None:
    console, stream = narrow()
    script = replace(SUMMARY, written=WrittenFiles(mechanism="overlay", created=("/job/model.pt",)))
    result = replace(sweep_result(), status="failed", message="the script ended", script=script)
    no_images = ImageSet(name="script:train.py", root="train.py", classes=(), images=(), found_images=0)
    print_result(console, result, (), no_images, Path("/runs/script"))
    assert "the script made 1 new file: model.pt" in " ".join(stream.getvalue().split())


def test_settings_are_one_line() -> None:
    console, stream = narrow()
    print_settings(console, sweep_result(CEILING, DEFAULT, TUNED), "/photos")
    (line,) = stream.getvalue().split("\n")[1:-1]
    assert line.startswith("Set: batch_size=64, num_workers=2, ")
    assert len(line) > 40


@pytest.mark.parametrize(
    "result",
    [
        sweep_result(CEILING),
        sweep_result(CEILING, outcome("pillow", 0, rate=500.0, role="baseline")),  # it misses, and nothing is better
        replace(sweep_result(CEILING, DEFAULT, TUNED), recommended=None),
    ],
)
def test_nothing_is_to_be_set_where_nothing_was_found(result: SweepResult) -> None:
    console, stream = narrow()
    print_settings(console, result, "/photos")
    assert stream.getvalue() == ""


def test_a_loader_whose_name_is_lost_has_no_settings() -> None:
    own = outcome("own", 2, rate=1200.0)
    assert settings_for(own.candidate, "") == ""
    console, stream = narrow()
    print_settings(console, sweep_result(CEILING, DEFAULT, own), "")
    assert stream.getvalue() == ""


def test_a_note_is_printed_as_it_is() -> None:
    stream = io.StringIO()
    note = "own:train:make_loader() [b] [/b] \\[x] :smile:"
    print_summary(Console(file=stream, width=160), sweep_result(CEILING, DEFAULT, TUNED), (note,))
    assert f"! {note}\n" in stream.getvalue()
