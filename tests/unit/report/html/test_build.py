from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipetune.candidates.describe import describe
from pipetune.report.html import build
from pipetune.report.html.build import html_page
from pipetune.runs.load import load
from tests.run_folders import DEFAULT, TUNED, sweep_folder, watch_folder
from tests.watch_fakes import verdict, window


@pytest.mark.thorough
@pytest.mark.parametrize("stored", [None, {"key": DEFAULT.candidate.key}])
def test_the_figures_are_of_the_recommendation_in_the_headline(stored: dict[str, str] | None, tmp_path: Path) -> None:
    """Of a killed run, and of one whose version recommended another candidate."""
    path = sweep_folder(tmp_path / "run")
    result = json.loads((path / "result.json").read_text())
    (path / "result.json").write_text(json.dumps({**result, "recommended": stored}))
    page = html_page(load(path))
    assert f"Recommended: {describe(TUNED.candidate)}: " in page
    assert "Recommended: opencv, 2 workers" in page


def test_a_launcher_that_was_seen_before_its_ranks_has_no_figure_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []
    monkeypatch.setattr(build, "_figure", lambda title, *_, **__: titles.append(title))
    ranks = (verdict(rank=0), verdict(rank=1))
    html_page(load(watch_folder(tmp_path / "run", [window(verdicts=(verdict(rank=None),)), window(verdicts=ranks)])))
    lost = [title for title in titles if title.startswith("Time lost")]
    assert lost == ["Time lost, by cause, rank 0", "Time lost, by cause, rank 1"]


@pytest.mark.parametrize("folder", [sweep_folder, watch_folder])
def test_a_run_given_as_the_current_folder_has_its_name(
    folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder(tmp_path / "here", []))
    monkeypatch.setattr(build, "_figure", lambda *_, **__: None)  # drawing takes seconds
    assert "from the run folder <code>here</code>" in html_page(load("."))
