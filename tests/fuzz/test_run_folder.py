"""Run folders of sweeps, watches and observed loops, and logs: whatever reads them reads on, or says what is wrong."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import shutil
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.cli import report as command
from pipetune.errors import PipetuneError
from pipetune.records.sweep import Failure
from pipetune.report import exports
from pipetune.report.comparison_text import comparison_lines
from pipetune.report.html import build
from pipetune.runs.comparison import compare
from pipetune.runs.load import load
from pipetune.runs.run import Run
from pipetune.store.folder import RunFolder
from tests.fakes import outcome
from tests.fuzz.mutations import changed, changed_lines, damaged, dumped, examples
from tests.run_folders import CEILING, DEFAULT, TUNED, readings, steps, sweep_folder, watch_folder
from tests.watch_fakes import stall, window

FAILED = outcome("dali", 1, failure=Failure(kind="crashed", phase="open", message="no", hint="look"))
INFO = {"host": {"cores_usable": 2.0, "versions": {"torch": "2"}}, "title": "train.py", "warmup_steps": 3}


def _sweep(path: Path) -> Path:
    folder = sweep_folder(path, (CEILING, DEFAULT, FAILED, TUNED))
    info = json.loads((folder / "run.json").read_text())
    info |= {"notes": ["a note"], "does_not_fit": [
        {"candidate": json.loads((folder / "outcomes.jsonl").read_text().splitlines()[0])["candidate"],
         "failure": {"kind": "x", "phase": "spawn", "message": "m", "hint": "h"}}
    ]}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(info))
    return folder


def _watch(path: Path) -> Path:
    return watch_folder(path, [window()], [stall()], log=path.with_name("watch.jsonl"))


def _observed(path: Path) -> Path:
    path.mkdir()
    with RunFolder(path) as folder:
        folder.write_json("run.json", {"kind": "observe", **INFO})
        folder.append_timeline("main", "step", steps())
        folder.append_timeline("main", "reading", readings())
        folder.write_json("result.json", {"kind": "observe", "reason": "the loop ended"})
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {"sweep": _sweep, "watch": _watch, "observe": _observed}


def _shown(run: Run) -> None:
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet):
        command._show(run)
    assert "\x1b" not in quiet.getvalue()


#: What the commands do with a run.
READERS: dict[str, Callable[[Run, Run], object]] = {
    "shown": lambda run, _: _shown(run),
    "markdown": lambda run, _: exports.markdown(run),
    "csv": lambda run, _: exports.csv(run),
    "trace": lambda run, _: json.loads("".join(exports.trace(run))),
    "page": lambda run, _: build.html_page(run).encode("utf-8", "backslashreplace"),
    "compared": lambda run, other: comparison_lines(compare(run, other), run, other),
    "compared with": lambda run, other: comparison_lines(compare(other, run), other, run),
    "named": lambda run, _: repr(run),
}


def _read(path: Path, original: Path, readers: Iterable[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = load(path)
        except PipetuneError:
            return
        other = load(original)
        for reader in readers:  # what one of them refuses another one may read
            with contextlib.suppress(PipetuneError):
                READERS[reader](run, other)


_TWO_READERS = st.sampled_from(list(itertools.combinations(READERS, 2)))


@pytest.fixture(autouse=True)
def _without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each takes a fifth of a second, and what one of them raises becomes a line of the page.
    monkeypatch.setattr(build, "_svg", lambda draw, size: "<svg/>")


def _fuzzed(kind: str, data: st.DataObject, folder: Path) -> None:
    original = folder / kind
    if not original.exists():
        MAKERS[kind](original)
    path = folder / "fuzzed"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(original, path)
    upper = sorted(path.glob("*.json*"))
    target = data.draw(st.sampled_from([*upper, *upper, *sorted(path.glob("timelines/*.jsonl"))]))
    content = target.read_bytes()
    if data.draw(st.integers(0, 7)) == 0:
        target.write_bytes(data.draw(damaged([content])))
    elif target.suffix == ".jsonl":
        target.write_bytes(data.draw(changed_lines(content)))
    else:
        target.write_bytes(dumped(data.draw(changed(json.loads(content)))))
    _read(path, original, data.draw(_TWO_READERS))


@given(data=st.data())
@examples(200)
def test_a_sweep(tmp_path: Path, data: st.DataObject) -> None:
    _fuzzed("sweep", data, tmp_path)


@given(data=st.data())
@examples(200)
def test_a_watch(tmp_path: Path, data: st.DataObject) -> None:
    _fuzzed("watch", data, tmp_path)


@given(data=st.data())
@examples(100)
def test_an_observed_loop(tmp_path: Path, data: st.DataObject) -> None:
    _fuzzed("observe", data, tmp_path)


@given(data=st.data())
@examples(100)
def test_a_log(tmp_path: Path, data: st.DataObject) -> None:
    log = tmp_path / "watch.jsonl"
    if not log.exists():
        _watch(tmp_path / "watch")
    content = log.read_bytes()
    path = tmp_path / "fuzzed.jsonl"
    path.write_bytes(data.draw(st.one_of(damaged([content]), changed_lines(content))))
    _read(path, log, data.draw(_TWO_READERS))
