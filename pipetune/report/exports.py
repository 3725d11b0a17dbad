"""A run as text for other programs: Markdown for an issue, CSV for a table, a trace for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

from pipetune.answering.stored import whatif_of
from pipetune.diagnosis.causes import title_of
from pipetune.explaining.stored import explanation_of
from pipetune.records.batch_size import BatchSizes
from pipetune.records.explanation import Explanation
from pipetune.records.prediction import WhatIf
from pipetune.report import batch_size_text, whatif_text
from pipetune.report.code import for_training, settings_for
from pipetune.report.columns import Surface, cells_of, columns_of
from pipetune.report.explain_text import HEADERS, closing_line, explanation_lines, loader_of, stage_rows
from pipetune.report.line import texts
from pipetune.report.notices_text import notice_lines
from pipetune.report.run_name import name_of
from pipetune.report.script_text import to_do
from pipetune.report.sweep_text import conclusion_lines, in_ranks, to_be_set
from pipetune.report.terminal.signs import clean
from pipetune.report.terminal.watch_text import SUGGESTION, name_of_rank, no_verdict, sentence_of, verdict_lines
from pipetune.report.trace import TracedTimeline, trace_lines
from pipetune.runs.run import BATCH_SIZE, EXPLAIN, OBSERVE, SWEEP, WHATIF, Run
from pipetune.scaling.batch_folder import read_batch_sizes
from pipetune.sweeping.result import SweepResult
from pipetune.sweeping.stored import sweep_result
from pipetune.units import format_duration, format_rate, whole_percent


def markdown(run: Run) -> str:
    """The conclusion and the ranking (of a watch: the verdict and shares per rank) as GitHub's Markdown.

    Raises:
        UsageError: the run lacks what it needs.
    """
    if run.kind == OBSERVE:
        lines = [f"### pipetune observe: {observed_line(run)}"]
    elif run.kind == EXPLAIN:
        lines = _explain_lines(explanation_of(run))
    elif run.kind == WHATIF:
        lines = _whatif_lines(whatif_of(run))
    elif run.kind == BATCH_SIZE:
        lines = _batch_lines(read_batch_sizes(run), round(run.usable_cores))
    else:
        lines = _sweep_lines(sweep_result(run), str(run.path)) if run.kind == SWEEP else list(_watch_lines(run))
    lines += ["", *(f"- {_plain(problem)}" for problem in run.problems)] if run.problems else []
    return "\n".join(lines) + "\n"


def text(run: Run, *, width: int = 100, ascii: bool = False) -> str:
    """The text of a watch, or of an observed loop, for the terminal.

    Args:
        run: not a sweep.
        width: of the terminal (characters).
        ascii: use ASCII characters only.
    """
    if run.kind == OBSERVE:
        return f"pipetune observe: {observed_line(run)}\n"
    lines = [clean(f"pipetune watch of {run.info.get('title', name_of(run))}", ascii=ascii)]
    lines += [] if run.verdicts else [no_verdict(run.windows)]
    for number, found in enumerate(run.verdicts):
        title = name_of_rank(found.rank, found.pid) if len(run.verdicts) > 1 else None
        lines += [""] if number else []
        lines += verdict_lines(found, width=width, title=title, ascii=ascii)
    return "\n".join(lines) + "\n"


def observed_line(run: Run) -> str:
    """The result of an observed loop in one line.

    Raises:
        MissingPackageError: pandas is not installed.
    """
    row = run.frame().iloc[0]
    if not row["steps"]:
        return "no step was measured after the warm-up"
    interval = ""
    if not isnan(row["samples_per_s_low"]):
        interval = f" ({format_rate(row['samples_per_s_low'], '')} to {format_rate(row['samples_per_s_high'], '')})"
    return (
        f"{format_rate(row['samples_per_s'], ' samples/s')}{interval}; of {format_duration(row['seconds'])}, the "
        f"accelerator was idle {whole_percent(row['accelerator_idle_frac'])} and the loop waited for data "
        f"{whole_percent(row['data_wait_frac'])}"
    )


def csv(run: Run) -> str:
    """``Run.frame()`` as CSV, a header line first; what was not measured is empty.

    Text that a spreadsheet would take for a formula gets an apostrophe in front, and what cannot be printed becomes
    ``?``: names of other processes are in it, and runs of other people.

    Raises:
        MissingPackageError: pandas is not installed.
    """
    return run.frame().map(_cell).to_csv(index=False, lineterminator="\n")


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return clean(f"'{value}" if value.startswith(("=", "+", "-", "@")) else value)


def trace(run: Run, candidate: str | None = None) -> Iterator[str]:
    """The lines of a Trace Event JSON file of one timeline, or of all, the recommended and the default one first.

    Raises:
        UsageError: there is no such timeline.
    """
    if candidate is not None:
        names = [run.timeline(candidate)]
    else:
        first = [name for name in (run.recommended, run.default) if name in run.candidates and name is not None]
        names = list(dict.fromkeys([*first, *run.candidates]))
    timelines = [_traced(run, name) for name in names]
    return trace_lines(timelines, {"run": str(run.path), "kind": run.kind, "pipetune": run.info.get("pipetune")})


def _traced(run: Run, name: str) -> TracedTimeline:
    columns = run.columns(name)
    return TracedTimeline(
        name=name, readings=columns.readings, steps=columns.steps, stalls=run.stall_columns(name)
    )  # fmt: skip


def _sweep_lines(result: SweepResult, run_folder: str) -> list[str]:
    lines = [f"### pipetune sweep of {_plain(str(result.dataset.get('name', '')))}", ""]
    lines += [f"{_plain(line)}  " for line in texts(conclusion_lines(result))]
    if result.script is not None:
        lines += ["", *(f"{_plain(line)}  " for line in to_do(result, run_folder))]
    elif result.recommended is not None and to_be_set(result):
        chosen = for_training(result.recommended.candidate, result.accelerator)
        settings = settings_for(chosen, str(result.dataset.get("root") or ""))
        lines += ["", f"Set{in_ranks(result)}: `{settings}`"]
    rows = [outcome for outcome in result.ranking if outcome.measurement is not None]
    columns = columns_of(Surface.MARKDOWN, result)
    if rows:
        lines += ["", _table_row([column.header for column in columns])]
        lines.append("|" + "|".join("--:" if column.numeric else "---" for column in columns) + "|")
    for outcome in rows:
        cells = [_plain(cell.text or "") for cell in cells_of(columns, result, outcome)]
        if outcome is result.recommended:
            cells[0] = f"**{cells[0]}**"
        lines.append(_table_row(cells))
    notices = texts(notice_lines(result))
    return [*lines, "", *(f"- {_plain(line)}" for line in notices)] if notices else lines


def _explain_lines(found: Explanation) -> list[str]:
    lines = [f"### pipetune explain of {_plain(loader_of(found))}", ""]
    lines += [f"{_plain(line)}  " for line in texts(explanation_lines(found))]
    lines += ["", _table_row(list(HEADERS)), "|---|--:|--:|--:|"]
    lines += [_table_row([_plain(cell) for cell in row]) for row in stage_rows(found)]
    notes = [line for line in (closing_line(found), *found.notes) if line is not None]
    return [*lines, "", *(f"- {_plain(line)}" for line in notes)]


def _whatif_lines(found: WhatIf) -> list[str]:
    lines = [f"### pipetune whatif of {_plain(found.candidate)}", "", _table_row(list(whatif_text.HEADERS))]
    lines += [f"|{'|'.join(['---', '--:', '--:', '--:', '---', '---', '---'])}|"]
    lines += [_table_row([_plain(cell) for cell in row]) for row in whatif_text.answer_rows(found)]
    lines += ["", *(f"{_plain(line)}  " for line in texts(whatif_text.reach_lines(found)))]
    about = (whatif_text.machine_line(found), whatif_text.own_error_line(found))
    notes = [*whatif_text.check_lines(found), *(line for line in about if line), *whatif_text.remarks_of(found)]
    return [*lines, "", *(f"- {_plain(line)}" for line in notes)]


def _batch_lines(found: BatchSizes, workers: int) -> list[str]:
    lines = [f"### pipetune batch-size of {_plain(batch_size_text.heading(found))}", ""]
    lines += [_table_row(list(batch_size_text.HEADERS)), f"|{'|'.join(['--:'] * len(batch_size_text.HEADERS))}|"]
    lines += [_table_row([_plain(cell) for cell in row]) for row in batch_size_text.batch_rows(found)]
    return [*lines, "", *(f"- {_plain(line.text)}" for line in batch_size_text.batch_lines(found, workers))]


def _table_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _watch_lines(run: Run) -> Iterator[str]:
    yield f"### pipetune watch of {_plain(str(run.info.get('title', name_of(run))))}"
    if not run.verdicts:
        yield from ("", no_verdict(run.windows))
    for found in run.verdicts:
        yield ""
        rank = "" if len(run.verdicts) < 2 else f"{name_of_rank(found.rank, found.pid)}: "
        yield f"{rank}{_plain(sentence_of(found))}"
        if found.advice:
            yield f"**{SUGGESTION}{_plain(found.advice)}**"
        if found.shares:
            yield from ("", "| cause | share of the lost time | 95 % interval |", "|---|--:|--:|")
        for share in found.shares:
            low, high = share.ci95
            title = _plain(title_of(share.cause))
            yield f"| {title} | {whole_percent(share.share)} | {100 * low:.0f} to {whole_percent(high)} |"
        yield ""
        yield from (f"- {_plain(line)}" for line in found.evidence)
        yield from (f"- missing signal: {_plain(line)}" for line in found.missing)


def _plain(text: str) -> str:
    """``text`` with escapes, so that Markdown shows it as it is."""
    text = text.replace("&", "&amp;")
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}" if sign not in "<>" else {"<": "&lt;", ">": "&gt;"}[sign])
    return text.replace("\r", " ").replace("\n", " ")
