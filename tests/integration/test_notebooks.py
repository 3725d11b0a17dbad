"""Every notebook runs from its first cell to its last, with little data; and is stored as it ran, with its outputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "caltech256",
        "eight_ranks",
        "own_script",
        "pack",
        "quickstart",
        "scaling",
        "watch_log",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("jpeg_roi")  # packing pixels needs it
@pytest.mark.timeout(250)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PIPETUNE_NOTEBOOK", "small")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)

    # In a folder of its own: run folders are made where a notebook runs.
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()

    errors = [
        out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs if out.output_type == "error"
    ]
    assert errors == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_as_it_ran(path: Path) -> None:
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]

    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [out for cell in code for out in cell.outputs]
    assert not [out for out in outputs if out.output_type == "error" or out.get("name") == "stderr"]
    pictures = [out for out in outputs if "image/png" in out.get("data", {})]
    drawing = [
        cell for cell in code if any(word in cell.source for word in ("pipetune.plot.", ".plot.barh(", "imshow("))
    ]
    assert len(pictures) == len(drawing) > 0
