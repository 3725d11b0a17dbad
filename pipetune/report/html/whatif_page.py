"""Predictions as one HTML page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipetune.records.prediction import WhatIf
from pipetune.records.redact import redact_line
from pipetune.report.html.page import Figure, Header, Row, host_facts, known, render
from pipetune.report.line import Kind
from pipetune.report.whatif_text import (
    HEADERS,
    LEGEND,
    answer_rows,
    check_lines,
    machine_line,
    own_error_line,
    reach_lines,
    remarks_of,
)

#: Columns that are numbers.
_NUMBERS = (1, 2, 3)


def whatif_page(
    found: WhatIf, *, run_name: str, about: Mapping[str, Any], result: Mapping[str, Any], figures: Sequence[Figure],
    problems: Sequence[str],
) -> str:  # fmt: skip
    """The page.

    Args:
        run_name: the folder's name.
        about: what was asked, and of which machine.
        result: what ``--json`` writes.
        figures: in the order of the page.
        problems: what could not be read or drawn.
    """
    workload = about.get("workload") or {}
    reach = reach_lines(found)
    facts = [
        ("loader", found.candidate), ("run", about.get("of")), ("data set", workload.get("dataset")),
        ("accelerator", (workload.get("accelerator") or {}).get("name")), ("ranks", workload.get("ranks")),
        *host_facts(about.get("host") or {}), ("started", about.get("started")), ("pipetune", about.get("pipetune")),
    ]  # fmt: skip
    return render(
        "whatif.html.j2",
        title=f"{found.candidate} · pipetune whatif",
        headline=next(line.text for line in reach if line.kind == Kind.HEADLINE),
        reach=[line.text.strip() for line in reach if line.kind != Kind.HEADLINE],
        loader=found.candidate,
        legend=LEGEND,
        headers=[Header(name, "number" if number in _NUMBERS else "text") for number, name in enumerate(HEADERS)],
        rows=_rows(found),
        checks=check_lines(found),
        about_errors=[line for line in (machine_line(found), own_error_line(found)) if line],
        figures=figures,
        notices=[*problems, *remarks_of(found)],
        facts=known(facts),
        command=redact_line(str(about.get("command") or "")) or None,
        run_name=run_name,
        data=dict(result),
    )


def _rows(found: WhatIf) -> list[Row]:
    known_answers = [one.prediction for one in found.answers if one.prediction is not None]
    measured, now = found.measured_samples_per_s, found.now
    keys: list[tuple[Any, ...]] = [
        ("", measured, None, measured / now.demand_samples_per_s, now.bound_by, now.next_bound_by or "", "")
    ]
    keys += [
        ("", one.samples_per_s, one.interval90[0], one.samples_per_s / one.demand_samples_per_s, one.bound_by,
         one.next_bound_by or "", one.kind)
        for one in known_answers
    ]  # fmt: skip
    rows = []
    for row, key in zip(answer_rows(found), keys, strict=True):
        rows.append(Row(cells=[(cell, cell if at == 0 else key[at]) for at, cell in enumerate(row)]))
    return rows
