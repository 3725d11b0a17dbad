"""An explanation as one HTML page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipetune.explaining.facts import PARTS, name_of
from pipetune.records.explanation import Explanation
from pipetune.records.redact import redact_line
from pipetune.report.explain_text import HEADERS, closing_line, explanation_lines, loader_of, rate_of, stage_rows
from pipetune.report.html.page import UNKNOWN, Figure, Header, Row, host_facts, known, render
from pipetune.report.line import headline
from pipetune.units import format_duration, format_rate, significant

_PART_HEADERS = [
    Header("measured", "text"), Header("rate", "number"), Header("CPU time per 1000 images", "number"),
    Header("cores", "number"), Header("how often", "number"),
]  # fmt: skip


def explain_page(
    found: Explanation, *, run_name: str, about: Mapping[str, Any], result: Mapping[str, Any],
    figures: Sequence[Figure], problems: Sequence[str],
) -> str:  # fmt: skip
    """The page.

    Args:
        run_name: the folder's name.
        about: ``run.json``.
        result: ``result.json``.
        figures: in the order of the page.
        problems: what of the run could not be read.
    """
    workload = about.get("workload") or {}
    seconds = result.get("seconds")
    facts = [
        ("loader", loader_of(found)), ("sweep", about.get("of")), ("data set", workload.get("dataset")),
        ("accelerator", (workload.get("accelerator") or {}).get("name")), ("ranks", workload.get("ranks")),
        ("images of the stages", about.get("subset_images")),
        ("time taken", None if seconds is None else format_duration(seconds)),
        *host_facts(about.get("host") or {}), ("started", about.get("started")), ("pipetune", about.get("pipetune")),
    ]  # fmt: skip
    return render(
        "explain.html.j2",
        title=f"{loader_of(found)} · pipetune explain",
        headline=headline(explanation_lines(found)),
        loader=loader_of(found),
        evidence=found.evidence,
        remedies=[(format_rate(one.samples_per_s), one.change, one.how) for one in found.remedies],
        headers=[Header(name, "number" if number else "text") for number, name in enumerate(HEADERS)],
        rows=_stages(found),
        part_headers=_PART_HEADERS,
        part_rows=_parts(found),
        figures=figures,
        closing=closing_line(found),
        notices=[*problems, *found.notes],
        facts=known(facts),
        command=redact_line(str(about.get("command") or "")) or None,
        run_name=run_name,
        data=dict(result),
    )


def _stages(found: Explanation) -> list[Row]:
    keys: list[tuple[Any, ...]] = [
        (
            name_of(cost.stages, found.stages),
            cost.cpu_s_per_1000_samples,
            cost.cpu_s_per_1000_samples,
            cost.samples_per_s,
        )
        for cost in found.stages
    ]
    keys.append(("", None, None, None))
    return [Row(cells=list(zip(row, key, strict=True))) for row, key in zip(stage_rows(found), keys, strict=False)]


def _parts(found: Explanation) -> list[Row]:
    return [
        Row(cells=[
            (PARTS.get(part.name, part.name), part.name),
            (rate_of(part.samples_per_s, part.rate_ci95), part.samples_per_s),
            (UNKNOWN if part.cpu_s_per_1000_samples is None else f"{significant(part.cpu_s_per_1000_samples)} s",
             part.cpu_s_per_1000_samples),
            (UNKNOWN if part.cores_used is None else f"{part.cores_used:.1f}", part.cores_used),
            (part.measurements, part.measurements),
        ])
        for part in found.parts
    ]  # fmt: skip
