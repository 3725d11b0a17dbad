"""What the pages of all runs have in common: figures, rows of tables, facts about the machine, the templates. Pure.

Jinja2 escapes every value except what pipetune draws itself: the icon, and the figures. A figure is SVG in which the
colours of text and lines are replaced by the page's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipetune.units import format_bytes

#: Shown in place of a value that was not measured.
UNKNOWN = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing for the page."""

    title: str
    svg: str
    """An ``<svg>`` element, safe to include as it is."""
    wide: bool = False
    """Whether it takes the whole width of the page."""


class Header(NamedTuple):
    """Header of a column in a table that can be sorted."""

    name: str
    kind: str
    """``number`` or ``text``: how it is aligned and sorted."""


class Row(NamedTuple):
    """A row of such a table."""

    cells: Sequence[tuple[Any, Any]]
    """Per cell: the text shown, and the value that rows are sorted by (``None``: last)."""
    key: str = ""
    """Identifies the row for scripts."""
    mark: str | None = None
    """Text shown after the first cell."""
    best: bool = False
    """Whether it is printed in bold."""


def render(template: str, *, data: Mapping[str, Any], **values: Any) -> str:
    """A page.

    Args:
        template: a file of ``templates/``.
        data: is embedded as JSON.
        values: what the template needs.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pipetune.report.html"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(data=_embedded(data), **values)


def known(facts: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The facts that have a value."""
    return [(name, value) for name, value in facts if value not in (None, "")]


def host_facts(host: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Facts about the machine, from the ``host`` of a run."""
    usable, total = host.get("cores_usable"), host.get("memory_total_bytes")
    return [
        ("machine", host.get("hostname")), ("processor", host.get("cpu_model")),
        ("cores", None if usable is None else f"{usable:g} usable of {host.get('cores_present', '?')}"),
        ("memory", None if total is None else format_bytes(total)), ("kernel", host.get("kernel")),
        ("Python", host.get("python")),
    ]  # fmt: skip


def themed(svg: str, replaced: Mapping[str, str]) -> str:
    """A figure's SVG without its XML head, with some colours replaced by CSS ones.

    Args:
        svg: as matplotlib writes it.
        replaced: colour as it stands in the SVG -> CSS colour, e.g. ``'currentColor'``.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, count=1, flags=re.DOTALL)
    for colour, css in replaced.items():
        body = re.sub(re.escape(colour), css, body, flags=re.IGNORECASE)
    return body


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON for a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
