"""Every block of Python compiles, and those that say so run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pipetune
from tests import ROOT
from tests.docs import pages
from tests.run_folders import sweep_folder

BLOCKS = [
    pytest.param(block, id=f"{name} {number}")
    for path, name in zip(pages.PAGES, pages.IDS, strict=True)
    for number, block in enumerate(pages.blocks(path, "python"), 1)
]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) > 8
    assert {one.values[0].test for one in BLOCKS} == {None, "run", "decoder", "line"}


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.values[0].test != "line"])
def test_it_compiles(block: pages.Block) -> None:
    compile(block.code, "block", "exec")


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.values[0].test == "run"])
def test_it_runs(block: pages.Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="the examples show frames")
    pytest.importorskip("matplotlib", reason="the examples draw").use("Agg")
    monkeypatch.chdir(tmp_path)
    sweep_folder(tmp_path / "pipetune-runs" / "20260131-184500-train")
    exec(compile(block.code, "block", "exec"), {})


@pytest.mark.parametrize("path", pages.PAGES, ids=pages.IDS)
def test_only_known_languages(path: Path) -> None:
    """A block of another kind would escape the tests."""
    known = {"sh", "python", "text", "yaml", ""}
    assert {block.language for block in pages.blocks(path, *known, "bash", "console", "py")} <= known - {""}


def test_what_can_be_imported_is_listed() -> None:
    """Where the page is read as it lies in the repository, nothing else says what there is."""
    listed = {span.partition("(")[0] for span in pages.spans(ROOT / "docs" / "reference" / "python.md")}
    assert {f"pipetune.{name}" for name in pipetune.__all__} - {"pipetune.__version__", "pipetune.plot"} <= listed
    documented = re.findall(r"^::: (pipetune\.[\w]+)$", pages.source(ROOT / "docs" / "reference" / "python.md"), re.M)
    assert {name for name in documented if name not in ("pipetune.plot", "pipetune.errors")} <= listed
