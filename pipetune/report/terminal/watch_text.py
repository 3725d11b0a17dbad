"""What ``pipetune watch`` prints as plain lines: verdicts, windows, stalls, the end. Pure.

Why ``textwrap`` and not rich: the lines are also written to logs and pipes, where nothing is styled.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence

from pipetune.diagnosis import causes
from pipetune.records.evidence import Signal
from pipetune.records.observation import EMULATED, LOADER_WAIT, NVML
from pipetune.records.watch import Stall, Verdict, Window
from pipetune.report.terminal.signs import bar, clean
from pipetune.units import format_bytes, format_duration, whole_percent

STAND_IN = "no accelerator could be read"
#: How lines begin.
EVIDENCE, SUGGESTION, MISSING = "evidence: ", "suggestion: ", "missing signals: "
#: Titles of the signals that can be missing.
SIGNAL_TITLES: dict[str, str] = {
    Signal.ACCELERATOR: "accelerator",
    Signal.GPU_SHARING: "the job's share of the GPU",
    Signal.STACKS: "stacks",
    Signal.PRESSURE: "pressure (PSI)",
    Signal.RUN_DELAY: "time waiting for a core",
    Signal.WAIT_CHANNEL: "what workers sleep in",
}
_MAX_BAR, _MIN_BAR = 40, 4
#: Maximum length of the advice in the line of a window (characters); the verdict has all of it.
_ADVICE_CHARACTERS = 72
#: A share below this is left out of a line.
_MIN_SHARE = 0.05


def name_of_rank(rank: int | None, pid: int) -> str:
    """``'rank 3'``; outside a distributed job ``'process 4711'``."""
    return f"process {pid}" if rank is None else f"rank {rank}"


def sentence_of(verdict: Verdict) -> str:
    """The sentence, with a remark where the figures are not those of a real accelerator."""
    if verdict.source == EMULATED:
        return f"EMULATED: {verdict.sentence}"
    stands_in = verdict.source == LOADER_WAIT and verdict.lost_frac is not None
    return f"{verdict.sentence}; {STAND_IN}" if stands_in else verdict.sentence


def no_verdict(windows: Sequence[Window]) -> str:
    """Why a watch with these windows has no verdict on the whole."""
    return f"no verdict: {'no training process was read' if windows else 'the watch ended before its first window'}"


def verdict_lines(verdict: Verdict, *, width: int, title: str | None = None, ascii: bool = False) -> list[str]:
    """Everything about one verdict, wrapped to ``width`` characters."""
    lines = [] if title is None else wrapped(title, width)
    lines += wrapped(sentence_of(verdict), width)
    if verdict.lost_frac is not None:
        stacks = f" and {verdict.stacks} stacks" if verdict.stacks else ""
        lines += wrapped(f"confidence: {verdict.confidence} ({verdict.looks} readings{stacks})", width)
    lines += share_lines(verdict, width, ascii=ascii)
    lines += listed(verdict.evidence, width, EVIDENCE)
    lines += [] if verdict.advice is None else wrapped(verdict.advice, width, SUGGESTION)
    lines += listed(verdict.missing, width, MISSING)
    return [clean(line, ascii=ascii) for line in lines]


def share_lines(verdict: Verdict, width: int, *, ascii: bool = False) -> list[str]:
    """A row per cause: its title, its share of the lost time ± half of the 95 % interval, and a bar."""
    titles = [causes.title_of(share.cause) for share in verdict.shares]
    longest = max(map(len, titles), default=0)
    rows = []
    for title, share in zip(titles, verdict.shares, strict=True):
        half = 100 * (share.ci95[1] - share.ci95[0]) / 2
        row = f"  {title.ljust(longest)} {100 * share.share:3.0f} % {'+-' if ascii else '±'}{half:2.0f} %  "
        room = min(_MAX_BAR, width - len(row) - 1)
        rows.append((row + (bar(share.share, room, ascii=ascii) if room >= _MIN_BAR else "")).rstrip())
    return rows


def listed(texts: Sequence[str], width: int, prefix: str) -> list[str]:
    """The texts below each other: ``prefix`` comes before the first, and the others are indented by its length."""
    later = " " * len(prefix)
    return [line for number, text in enumerate(texts) for line in wrapped(text, width, later if number else prefix)]


def wrapped(text: str, width: int, prefix: str = "") -> list[str]:
    """``prefix`` and ``text`` in lines of at most ``width`` characters, the later ones indented like the text."""
    return textwrap.wrap(
        clean(text), max(width, len(prefix) + 8), initial_indent=prefix, subsequent_indent=" " * len(prefix)
    )


def figures(verdict: Verdict) -> str:
    """``'util 40 %, lost 60 %: decoding on the CPU 90 %'``."""
    if verdict.lost_frac is None:
        return causes.title_of(verdict.cause)
    if verdict.util_frac is None:
        text = f"no accelerator read, {whole_percent(verdict.lost_frac)} lost"
    else:
        mark = "EMULATED " if verdict.source == EMULATED else ""
        text = f"{mark}util {whole_percent(verdict.util_frac)}, lost {whole_percent(verdict.lost_frac)}"
    parts = [share for share in verdict.shares if share.share >= _MIN_SHARE][:3]
    named = [f"{causes.title_of(part.cause)} {whole_percent(part.share)}" for part in parts]
    return f"{text}: {', '.join(named) or causes.title_of(verdict.cause)}"


def window_line(window: Window) -> str:
    """One line for a log: when the window ended, the worst rank's figures, stalls, and what to change."""
    parts = [_time_of_day(window.started_unix_s + window.seconds)]
    if not window.verdicts:
        parts.append("no training process")
    else:
        worst = window.verdicts[0]
        if len(window.verdicts) > 1:
            parts.append(f"worst of {len(window.verdicts)}: {name_of_rank(worst.rank, worst.pid)}")
        parts.append(figures(worst) + (f" ({worst.confidence} confidence)" if worst.lost_frac is not None else ""))
    if window.stalls:
        parts.append(_counted(window.stalls))
    if window.verdicts and window.verdicts[0].advice is not None:
        parts.append(f"{SUGGESTION}{_shortened(window.verdicts[0].advice)}")
    return clean(" | ".join(parts))


def stall_line(stall: Stall, began_unix_s: float, *, source: str = NVML) -> str:
    """One line for a log about a stall that began at ``began_unix_s`` (s since 1970)."""
    mark = "EMULATED " if source == EMULATED else ""
    return clean(f"{_time_of_day(began_unix_s)} | {mark}{_stalled(stall)}")


def summary_lines(
    verdicts: Sequence[Verdict],
    stalls: Sequence[Stall],
    *,
    width: int,
    own_core_frac: float | None = None,
    own_rss_bytes: int | None = None,
    ascii: bool = False,
) -> list[str]:
    """The end of a watch: the worst rank's verdict in full, the others in a line each, stalls, and pipetune's cost."""
    if not verdicts:
        return [no_verdict(())]
    worst, *others = verdicts
    lines = verdict_lines(
        worst, width=width, title=f"{name_of_rank(worst.rank, worst.pid)}, the worst of {len(verdicts)}:" if others else
        None, ascii=ascii,
    )  # fmt: skip
    for other in others:
        lines += wrapped(figures(other), width, f"{name_of_rank(other.rank, other.pid)}: ")
    lines += wrapped(_stalls_by_cause(stalls), width)
    if own_core_frac is not None:
        memory = "" if own_rss_bytes is None else f" and {format_bytes(own_rss_bytes)} of memory"
        lines += wrapped(f"pipetune itself used {100 * own_core_frac:.2f} % of a core{memory}", width)
    return [clean(line, ascii=ascii) for line in lines]


def _stalls_by_cause(stalls: Sequence[Stall]) -> str:
    if len(stalls) < 2:
        return "".join(f"1 stall: {_stalled(stall)}" for stall in stalls) or "no stalls"
    groups: dict[str, list[Stall]] = {}
    for stall in stalls:
        groups.setdefault(stall.cause, []).append(stall)
    ordered = sorted(groups.items(), key=lambda item: -sum(map(_length_s, item[1])))
    named = [f"{causes.title_of(cause)}" + (f" {_counted(group)}" if len(groups) > 1 else "")
             for cause, group in ordered]  # fmt: skip
    return f"{_counted(stalls)}: {'; '.join(named)}; the longest: {_stalled(max(stalls, key=_length_s))}"


def _stalled(stall: Stall) -> str:
    cause = causes.title_of(stall.cause)
    return f"{name_of_rank(stall.rank, stall.pid)} stalled {format_duration(_length_s(stall))}: {cause}"


def _counted(stalls: Sequence[Stall]) -> str:
    seconds = sum(_length_s(stall) for stall in stalls)
    return f"{len(stalls)} stall{'' if len(stalls) == 1 else 's'}, {format_duration(seconds)}"


def _length_s(stall: Stall) -> float:
    return (stall.t_end_ns - stall.t_start_ns) / 1e9


def _shortened(advice: str) -> str:
    """The first clauses of the advice, if possible whole ones."""
    if len(advice) <= _ADVICE_CHARACTERS:
        return advice
    start = advice[: _ADVICE_CHARACTERS + 1]
    end = max(start.rfind(sign) for sign in ("; ", ", ", ": ", " ("))
    return start[:end] if end > _ADVICE_CHARACTERS // 3 else start[: start.rfind(" ")] + " …"


def _time_of_day(unix_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix_s))
