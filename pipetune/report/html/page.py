"""A run as one HTML page: no network, no script but its own, everything escaped, light, dark and printable. Pure.

Jinja2 escapes every value; what is not to be escaped is drawn by us: figures, which come as SVG in which the colours of
text and rules are replaced by the page's, and the icon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipetune.candidates.describe import describe
from pipetune.diagnosis.candidate import diagnosis_of
from pipetune.records.sweep import Outcome
from pipetune.report.code import code_for, settings_for
from pipetune.report.columns import Mark, Surface, cells_of, columns_of, format_interval, mark_of
from pipetune.report.line import Kind, headline, texts
from pipetune.report.sweep_text import conclusion_lines, notice_lines, path_lines
from pipetune.sweeping.result import SweepResult
from pipetune.sweeping.result_json import to_json
from pipetune.units import format_bytes, format_duration, format_rate, format_share

if TYPE_CHECKING:
    from jinja2 import Environment

_STATUS = {
    "target_met": ("target met", "good"),
    "target_missed": ("target missed", "warn"),
    "interrupted": ("interrupted", "warn"),
    "failed": ("failed", "bad"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing for the page."""

    title: str
    svg: str
    """An ``<svg>`` element, safe to include as it is."""
    wide: bool = False
    """Takes the whole width."""


def sweep_page(
    result: SweepResult, *, run_name: str, run_folder: str, about: Mapping[str, Any], figures: Sequence[Figure],
    problems: Sequence[str],
) -> str:  # fmt: skip
    """The page of a sweep.

    Args:
        result: what came out.
        run_name: the folder's name.
        run_folder: its whole path.
        about: ``run.json``.
        figures: in the order of the page.
        problems: what of the run could not be read.
    """
    recommended = result.recommended
    conclusion = conclusion_lines(result)
    columns = columns_of(Surface.PAGE)
    title, kind = _STATUS.get(result.status, (result.status, "warn"))
    return _environment().get_template("sweep.html.j2").render(
        title=f"{result.dataset.get('name', run_name)} · pipetune sweep",
        headline=headline(conclusion),
        status=title,
        status_kind=kind,
        sentences=[line.text for line in conclusion if line.kind is not Kind.HEADLINE],
        tiles=_tiles(result),
        settings=None if recommended is None else settings_for(recommended.candidate, _root(result)),
        code=_code(result, recommended, run_folder),
        columns=[(column.header_in(result), "number" if column.numeric else "text") for column in columns],
        sorted_by=next(number for number, column in enumerate(columns) if column.name == "rate"),
        rows=[
            {
                "key": outcome.candidate.key,
                "cells": [("–" if cell.text is None else cell.text, cell.sort) for cell in row],
                "mark": mark_of(result, outcome),
                "best": outcome is result.recommended,
            }
            for outcome in result.ranking
            for row in [cells_of(columns, result, outcome)]
        ],
        figures=figures,
        evidence=_evidence(result),
        path=path_lines(result),
        left_out=result.left_out,
        notices=[*problems, *texts(notice_lines(result))],
        facts=_facts(result, about),
        versions=sorted((result.host.get("versions") or {}).items()),
        command=about.get("command"),
        run_name=run_name,
        data=_embedded(to_json(result)),
    )  # fmt: skip


def watch_page(
    *, run_name: str, about: Mapping[str, Any], end: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]],
    windows: Sequence[Mapping[str, Any]], figures: Sequence[Figure], problems: Sequence[str], kind: str = "watch",
    headline: str | None = None,
) -> str:  # fmt: skip
    """The page of a watch, or of an observed loop.

    Args:
        run_name: the folder's or the log's name.
        about: ``run.json``, or the log's first line.
        end: ``result.json``, or the log's last line; empty when the watch was killed.
        ranks: a verdict per rank, the worst first.
        windows: one row each, for the table.
        figures: in the order of the page.
        problems: what of the run could not be read.
        kind: ``watch`` or ``observe``.
        headline: instead of the worst rank's sentence.
    """
    worst = ranks[0] if ranks else None
    cost = end.get("own_core_frac")
    facts = [
        ("job", about.get("title")), ("process", about.get("pid")), ("found", about.get("found")),
        ("looks", f"every {about['interval_s']} s" if about.get("interval_s") else None),
        ("ended", end.get("reason")), ("stalls", end.get("stalls")),
        ("cost of watching", None if cost is None else f"{format_share(cost)} of a core"),
        *_host_facts(about.get("host") or {}), ("pipetune", about.get("pipetune")),
    ]  # fmt: skip
    return _environment().get_template("watch.html.j2").render(
        kind=kind,
        title=f"{about.get('title', run_name)} · pipetune {kind}",
        headline=headline or (worst["sentence"] if worst else "nothing was seen that could be judged"),
        ranks=ranks,
        windows=windows,
        figures=figures,
        notices=problems,
        facts=[(name, value) for name, value in facts if value not in (None, "")],
        command=" ".join(about.get("job_command") or ()) or about.get("command"),
        run_name=run_name,
        data=_embedded({"about": dict(about), "end": dict(end)}),
    )  # fmt: skip


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


def _tiles(result: SweepResult) -> list[tuple[str, str, str]]:
    """Name, value and remark of the few numbers that matter."""
    tiles = []
    ceiling = result.ceiling.measurement if result.ceiling else None
    if ceiling is not None:
        tiles.append(("the accelerator can take", format_rate(ceiling.samples_per_s), result.accelerator.name))
    recommended = result.recommended is not None and mark_of(result, result.recommended) is Mark.RECOMMENDED
    chosen = "the recommended one" if recommended else "the nearest"
    for name, outcome in (("PyTorch's default delivers", result.baseline), (f"{chosen} delivers", result.recommended)):
        if outcome is not None and outcome.measurement is not None:
            goodput = outcome.measurement.goodput
            share = "" if goodput is None else f"{format_share(goodput)} of what the accelerator can take"
            tiles.append((name, format_interval(outcome.measurement), share))
    if result.speedup is not None and result.speedup_ci95 is not None:
        low, high = result.speedup_ci95
        tiles.append(("speed-up", f"{result.speedup:.2f}x", f"95 % interval {low:.2f} to {high:.2f}"))
    return tiles


def _root(result: SweepResult) -> str:
    return str(result.dataset.get("root") or "")


def _code(result: SweepResult, recommended: Outcome | None, run_folder: str) -> str | None:
    root = _root(result)
    if recommended is None or recommended.measurement is None or not root:
        return None
    return code_for(
        recommended.candidate, root=root, image_size=result.workload["image_size_px"],
        flat=int(result.dataset.get("classes") or 0) <= 1, on_gpu=result.accelerator.kind == "cuda",
        run_folder=run_folder, shards=bool(result.dataset.get("shards")),
    )  # fmt: skip


def _evidence(result: SweepResult) -> list[dict[str, Any]]:
    found = []
    for name, outcome in (("PyTorch's default", result.baseline), ("Recommended", result.recommended)):
        diagnosis = None if outcome is None else diagnosis_of(outcome, result.usable_cores)
        if outcome is not None and diagnosis is not None:
            found.append({"name": f"{name}: {describe(outcome.candidate)}", "diagnosis": diagnosis})
    return found


def _facts(result: SweepResult, about: Mapping[str, Any]) -> list[tuple[str, Any]]:
    data, work = result.dataset, result.workload
    images = data.get("images")
    facts = [
        ("data set", data.get("name")), ("folder", data.get("root") if images else None),
        ("images", None if not images else f"{images:,} in {data.get('classes', 0):,} classes"),
        ("mean file", format_bytes(round(data["mean_bytes"])) if data.get("mean_bytes") else None),
        ("median size", f"{data['median_width_px']} x {data['median_height_px']} px"
                        if data.get("median_width_px") else None),
        ("accelerator", result.accelerator.name), ("its rate's source", result.accelerator.source),
        ("model", work.get("model")), ("precision", work.get("precision")), ("batch size", work.get("batch_size")),
        ("crop", f"{work['image_size_px']} px" if work.get("image_size_px") else None),
        ("page cache", work.get("cache")), ("seed", work.get("seed")),
        ("target", f"{result.goal.target:.0%} {result.goal.metric}"),
        ("measured", f"{len(result.outcomes)} times in {format_duration(result.seconds)}"),
        *_host_facts(result.host), ("started", about.get("started")), ("pipetune", about.get("pipetune")),
    ]  # fmt: skip
    return [(name, value) for name, value in facts if value not in (None, "")]


def _host_facts(host: Mapping[str, Any]) -> list[tuple[str, Any]]:
    usable, total = host.get("cores_usable"), host.get("memory_total_bytes")
    return [
        ("machine", host.get("hostname")), ("processor", host.get("cpu_model")),
        ("cores", None if usable is None else f"{usable:g} usable of {host.get('cores_present', '?')}"),
        ("memory", None if total is None else format_bytes(total)), ("kernel", host.get("kernel")),
        ("Python", host.get("python")),
    ]  # fmt: skip


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON for a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("pipetune.report.html"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
