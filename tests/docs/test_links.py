"""Every link leads somewhere, and every file that is named exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import parts
from tests import ROOT
from tests.docs import pages

#: Files that the manual asks a reader to make, or that lie in a run folder.
NOT_HERE = {
    "pipetune/decoders/pillow_reduced.py",
    "timelines/KEY.jsonl",
    "timelines/RANK.jsonl",
    "timelines/main.jsonl",
}
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?")
# By name: a folder of runs may lie beside them.
_ROOTS = ("pipetune/", "tests/", "benchmarks/", "docs/", "notebooks/", "timelines/")


@pytest.mark.parametrize("path", pages.PAGES, ids=pages.IDS)
def test_links(path: Path) -> None:
    included = re.search(r"generated: file ([\w.]+)", pages.source(path))
    for link in pages.links(path):
        if link.startswith(("https://", "http://")):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.is_relative_to(ROOT), link
        assert file.exists(), link
        if path.is_relative_to(ROOT / "docs") and not included:
            assert file.is_relative_to(ROOT / "docs"), f"{link} is not part of the manual"
        if anchor:
            assert anchor in pages.anchors(file), link


@pytest.mark.parametrize("path", pages.PAGES, ids=pages.IDS)
def test_named_files(path: Path) -> None:
    for span in pages.spans(path):
        if _FILE.fullmatch(span) and span.startswith(_ROOTS) and span not in NOT_HERE:
            assert (ROOT / span).exists(), span


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md"))


def test_every_part_is_used() -> None:
    asked = [words for path in pages.PAGES for words in re.findall(r"generated: (.+?) -->", pages.source(path))]
    assert {words.split()[0] for words in asked} == set(parts.PARTS)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(parts.UnknownPart, match="no part is called 'couses'"):
        parts.fill("# Page\n\n<!-- generated: couses -->\n")
