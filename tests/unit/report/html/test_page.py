from __future__ import annotations

import pytest

from pipetune.report.html.page import Header, Row, known, render, themed
from tests.unit.report.html.reader import EVIL, Page


def test_a_figures_colours_become_the_pages() -> None:
    svg = "<?xml?>\n<!DOCTYPE svg>\n<svg><metadata>x\ny</metadata><g style='fill: #1a1a19'/></svg>"
    assert themed(svg, {"#1A1A19": "var(--ink)"}) == "<svg><g style='fill: var(--ink)'/></svg>"


@pytest.mark.parametrize("value", [None, ""])
def test_facts_without_a_value_are_left_out(value: str | None) -> None:
    assert known([("a", 0), ("b", value), ("c", "x")]) == [("a", 0), ("c", "x")]


def test_a_table_keeps_what_is_shown_and_what_is_sorted_by_apart() -> None:
    rows = [Row(cells=[(EVIL, "b"), ("–", None)], key="k", mark="best of all", best=True)]
    page = Page(
        render(
            "watch.html.j2", data={}, kind="watch", title="t", headline="h", ranks=[], figures=[], notices=[], facts=[],
            command=None, run_name="run", headers=[Header("name", "text"), Header("rate", "number")], rows=rows,
        )
    )  # fmt: skip

    cells = [attributes for tag, attributes in page.tags if tag == "td"]
    assert [(cell["class"], cell["data-value"]) for cell in cells] == [("text", "b"), ("number", "")]
    assert EVIL in page.text
    assert "best of all" in page.text
    assert ("tr", {"data-key": "k", "class": "best"}) in page.tags
