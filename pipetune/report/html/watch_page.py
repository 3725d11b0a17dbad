"""A watch, or an observed loop, as one HTML page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipetune.diagnosis.causes import title_of
from pipetune.records.redact import redact_line, redact_words
from pipetune.records.watch import Verdict, Window
from pipetune.report.html.page import UNKNOWN, Figure, Header, Row, host_facts, known, render
from pipetune.report.terminal.watch_text import name_of_rank, no_verdict, sentence_of
from pipetune.units import format_share, whole_percent

#: Windows that the page lists one by one: the newest.
_MAX_WINDOWS = 200
_HEADERS = (
    Header("window", "number"),
    Header("rank", "number"),
    Header("cause", "text"),
    Header("lost", "number"),
    Header("confidence", "text"),
    Header("CPU busy", "number"),
)


def watch_page(
    *, run_name: str, about: Mapping[str, Any], end: Mapping[str, Any], verdicts: Sequence[Verdict],
    windows: Sequence[Window], figures: Sequence[Figure], problems: Sequence[str], kind: str = "watch",
    headline: str | None = None,
) -> str:  # fmt: skip
    """The page of a watch, or of an observed loop.

    Args:
        run_name: the folder's or the log's name.
        about: ``run.json``, or the log's first line.
        end: ``result.json``, or the log's last line; empty when the watch was killed.
        verdicts: of the whole run, one per rank, the worst first.
        windows: in the order of time.
        figures: in the order of the page.
        problems: what of the run could not be read.
        kind: ``watch`` or ``observe``.
        headline: instead of the worst rank's sentence.
    """
    about = _without_secrets(about)
    cost = end.get("own_core_frac")
    facts = [
        ("job", about.get("title")), ("process", about.get("pid")), ("found", about.get("found")),
        ("readings", f"every {about['interval_s']} s" if about.get("interval_s") else None),
        ("ended", end.get("reason")), ("stalls", end.get("stalls")),
        ("cost of watching", None if cost is None else f"{format_share(cost)} of a core"),
        *host_facts(about.get("host") or {}), ("pipetune", about.get("pipetune")),
    ]  # fmt: skip
    return render(
        "watch.html.j2",
        kind=kind,
        title=f"{about.get('title', run_name)} · pipetune {kind}",
        headline=headline or (sentence_of(verdicts[0]) if verdicts else no_verdict(windows)),
        ranks=[_rank(verdict) for verdict in verdicts],
        headers=_HEADERS,
        rows=[_row(window, verdict) for window in windows[-_MAX_WINDOWS:] for verdict in window.verdicts],
        figures=figures,
        notices=[*problems, *_cut(windows)],
        facts=known(facts),
        command=" ".join(about.get("job_command") or ()) or about.get("command"),
        run_name=run_name,
        data={"about": about, "end": dict(end)},
    )  # fmt: skip


def _cut(windows: Sequence[Window]) -> list[str]:
    """That not every window is listed."""
    if len(windows) <= _MAX_WINDOWS:
        return []
    return [f"the table has the newest {_MAX_WINDOWS} of {len(windows):,} windows; pipetune report --csv writes all"]


def _without_secrets(about: Mapping[str, Any]) -> dict[str, Any]:
    """``about``, with its command lines as they are stored today: earlier versions stored them as they were."""
    kept = dict(about)
    if kept.get("job_command"):
        kept["job_command"] = redact_words(map(str, kept["job_command"]))
    if kept.get("command"):
        kept["command"] = redact_line(str(kept["command"]))
    return kept


def _rank(verdict: Verdict) -> dict[str, Any]:
    return {
        "name": name_of_rank(verdict.rank, verdict.pid),
        "sentence": sentence_of(verdict),
        "confidence": None if verdict.lost_frac is None else verdict.confidence,
        "advice": verdict.advice,
        "evidence": verdict.evidence,
        "missing": verdict.missing,
        "shares": [
            {
                "title": title_of(share.cause),
                "share": whole_percent(share.share),
                "interval": f"{100 * share.ci95[0]:.0f} to {whole_percent(share.ci95[1])}",
            }
            for share in verdict.shares
        ],
    }


def _row(window: Window, verdict: Verdict) -> Row:
    lost, busy, rank = verdict.lost_frac, window.cpu_busy_pct, verdict.rank
    cells = [
        (window.number, window.number),
        (UNKNOWN if rank is None else rank, rank),
        (title_of(verdict.cause), verdict.cause),
        (UNKNOWN if lost is None else whole_percent(lost), lost),
        (verdict.confidence, verdict.confidence),
        (UNKNOWN if busy is None else f"{busy:.0f} %", busy),
    ]
    return Row(cells=cells)
