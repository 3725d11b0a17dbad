"""How candidates and runs are told apart in figures."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from pipetune import plot
from pipetune.runs.load import load
from tests.fakes import outcome
from tests.run_folders import CEILING, TIMED, sweep_folder
from tests.unit.plot.drawn import texts


@pytest.mark.parametrize(("backend", "is_dashed"), [("dali", True), ("opencv", False)])
def test_threads_of_a_library_are_dashed_too(backend: str, is_dashed: bool, tmp_path: Path, ax: Axes) -> None:
    run = load(sweep_folder(tmp_path / "run", [CEILING, outcome(backend, 2, rate=500.0, **TIMED)]))
    plot.rate_by_workers(run, ax=ax)

    assert ("dashed: threads" in texts(ax)) == is_dashed


def test_a_loader_of_a_newer_version_is_drawn_as_what_it_was_stored_as(tmp_path: Path, ax: Axes) -> None:
    newer = outcome("opencv", 2, rate=500.0, **TIMED)
    newer = replace(newer, candidate=replace(newer.candidate, loader="newer"))
    plot.rate_by_workers(load(sweep_folder(tmp_path / "run", [CEILING, newer])), ax=ax)

    assert "dashed: threads" not in texts(ax)


def legend(first: Path, second: Path, ax: Axes, names: tuple[str, str] | None = None) -> list[str]:
    """Its texts, after it was drawn."""
    plot.compared(load(first), load(second), ax=ax, names=names)
    ax.figure.draw_without_rendering()
    found = ax.get_legend()
    assert found is not None
    return [text.get_text().strip() for text in found.get_texts()]


def test_names_of_folders_are_shown_as_they_are(tmp_path: Path, ax: Axes) -> None:
    # Between two "$" is no formula, least of all one that cannot be parsed.
    names = ["_hidden", r"a $\frac{$ b"]

    assert legend(*(sweep_folder(tmp_path / name) for name in names), ax=ax) == names


def test_names_that_were_given_are_shown_as_they_are(tmp_path: Path, ax: Axes) -> None:
    folders = [sweep_folder(tmp_path / name) for name in "ab"]

    assert legend(*folders, ax=ax, names=("_x", r"$\frac{$")) == ["_x", r"$\frac{$"]


def test_folders_with_equal_names_are_told_apart_by_those_around_them(tmp_path: Path, ax: Axes) -> None:
    folders = [sweep_folder(tmp_path / name / "deep" / "run") for name in "ab"]

    assert legend(*folders, ax=ax) == [os.path.join(name, "deep", "run") for name in "ab"]


def test_the_folder_one_is_in_has_a_name(tmp_path: Path, ax: Axes, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_folder(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")

    assert legend(Path("."), sweep_folder(tmp_path / "there"), ax) == ["here", "there"]
    ax.clear()
    assert legend(Path("."), tmp_path / "here", ax) == ["here", "here"]
