"""A scaling table as one HTML page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipetune.records.scaling import Scaling
from pipetune.report.html.page import UNKNOWN, Figure, Header, Row, known, render
from pipetune.report.scale_text import LEGEND, headline_of, lost_line, price_line, tables_of, time_to_lines


class Block(NamedTuple):
    """A table with its title."""

    id: str
    title: str
    headers: list[Header]
    rows: list[Row]


def scale_page(
    found: Scaling, *, result: Mapping[str, Any], figures: Sequence[Figure], problems: Sequence[str]
) -> str:  # fmt: skip
    """The page.

    Args:
        result: what ``--json`` writes.
        figures: in the order of the page.
        problems: what could not be drawn.
    """
    blocks = [
        Block(
            id=f"table-{number}", title=title,
            headers=[Header(column.name or "how", "number" if column.number else "text") for column in columns],
            rows=[Row(cells=[(UNKNOWN if column.text(row) == "-" else column.text(row), column.key(row))
                             for column in columns], best=row.measured) for row in found.rows],
        )
        for number, (title, columns) in enumerate(tables_of(found))
    ]  # fmt: skip
    facts = [
        ("training", found.about), ("accelerators in a host", found.accelerators_per_host),
        ("images of an epoch", None if found.images is None else f"{found.images:,}"),
        ("epochs", None if found.epochs is None else f"{found.epochs:g}"), ("prices", price_line(found)),
        ("sources", "; ".join(dict.fromkeys(row.source for row in found.rows if row.measured))),
    ]  # fmt: skip
    return render(
        "scale.html.j2",
        title="pipetune scale" + (f" · {found.about}" if found.about else ""),
        headline=headline_of(found),
        context=" ".join(filter(None, (found.about, lost_line(found)))),
        legend=LEGEND,
        blocks=blocks,
        times_to=list(time_to_lines(found)),
        figures=figures,
        notices=[*problems, *found.notes],
        facts=known(facts),
        data=dict(result),
    )
