"""The sections of the live view of ``watch``: records in, styled lines out. No rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from pipetune.diagnosis import causes
from pipetune.records.evidence import Signal, SignalValue
from pipetune.records.observation import EMULATED, LOADER_WAIT, RUNNING, MachineReading, RankReading, TaskReading
from pipetune.records.watch import Stall, Verdict, WorkerSummary
from pipetune.report.terminal.screen import Section, StyledLine
from pipetune.report.terminal.signs import bar, stretches, timeline_of
from pipetune.report.terminal.watch_text import (
    EVIDENCE,
    MISSING,
    SIGNAL_TITLES,
    SUGGESTION,
    listed,
    name_of_rank,
    sentence_of,
    share_lines,
    wrapped,
)
from pipetune.stats.intervals import mean
from pipetune.units import format_duration, whole_percent

BAD, WARN, GOOD, HEAD, FAINT = "red", "yellow", "green", "bold", "dim"
#: Number of the newest readings of the machine that are averaged: for the CPU, so that its figures do not flicker, and
#: for pipetune's own cost.
_SMOOTHED, _COSTED = 4, 120
_LABEL, _FIGURE, _WORKER_BAR = 10, 12, 10
#: Signals that have their own section, so that evidence about them is not shown twice.
_SHOWN = (Signal.MAIN_THREAD, Signal.CPU, Signal.PRESSURE, Signal.CPU_QUOTA)
#: Below this width the machine takes two lines.
_WIDE = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A rank's accelerator over the time that its timeline covers."""

    points: Sequence[float | None]
    seconds: float
    stalled_s: float | None
    """How long the stall that is going on has lasted; ``None``: there is none."""


def title_line(title: str, elapsed_s: float, source: str | None, width: int) -> StyledLine:
    """What is watched, for how long, and which accelerator is read. The title is cut to make room for the rest."""
    seen = {EMULATED: ", EMULATED accelerator", LOADER_WAIT: ", no accelerator read"}.get(source or "", "")
    elapsed = f"{elapsed_s:.0f} s" if elapsed_s < 59.5 else format_duration(elapsed_s)
    rest = f", {elapsed}{seen}"
    return [(title if len(title) + len(rest) <= width else title[: width - len(rest) - 1] + "…", HEAD), (rest, HEAD)]


def rank_lines(verdict: Verdict, track: Track, width: int, *, ascii: bool, alone: bool) -> list[StyledLine]:
    """A rank's utilisation and, below it, marks at its stalls."""
    columns = max(8, width - _LABEL - _FIGURE)
    row, marks = timeline_of(track.points, columns, ascii=ascii)
    unread = verdict.source == LOADER_WAIT
    label = "EMULATED" if verdict.source == EMULATED else "loop" if unread else "GPU"
    share = verdict.util_frac if not unread or verdict.lost_frac is None else 1 - verdict.lost_frac
    figure = "" if share is None else f"{100 * share:4.0f} % busy"
    if not alone:
        label = f"rank {verdict.rank}" if verdict.rank is not None else f"{verdict.pid}"
    graph: StyledLine = [(f"{label:<{_LABEL}}" + " " * (columns - len(row)), "")]
    graph += [(text, BAD if stalled else GOOD) for text, stalled in stretches(row, marks)]
    graph.append((figure, ""))
    span = f"{track.seconds:.0f} s" if track.seconds < 99.5 else f"{track.seconds / 60:.1f} min"
    below: StyledLine = [(f"{span:<{_LABEL}}", FAINT), (marks.rjust(columns), BAD)]
    if track.stalled_s is not None:
        below.append((f" stall {track.stalled_s:.0f} s", BAD))
    return [graph, below]


def other_ranks_line(verdicts: Sequence[Verdict]) -> list[StyledLine]:
    """The ranks for which there is no room."""
    if not verdicts:
        return []
    known = [verdict.util_frac for verdict in verdicts if verdict.util_frac is not None]
    busy = f", busy {100 * min(known):.0f}..{100 * max(known):.0f} %" if known else ""
    return [[(f"+{len(verdicts)} rank{'' if len(verdicts) == 1 else 's'}{busy}", "")]]


def machine_lines(readings: Iterable[MachineReading], width: int) -> list[StyledLine]:
    """The CPU and the pressure; ``readings`` newest first."""
    newest = list(islice(readings, _SMOOTHED))
    if not newest:
        return []
    last = newest[0]
    busy = mean(reading.cpu_busy_pct for reading in newest)
    idle = mean(reading.cpu_idle_pct for reading in newest)
    iowait = mean(reading.cpu_iowait_pct for reading in newest)
    cpu_text = f"CPU busy {_pct(busy)}, idle {_pct(idle)}, iowait {_pct(iowait)} of {last.cores:g} cores"
    first: StyledLine = [(cpu_text, "")]
    throttled = mean(reading.throttled_frac for reading in newest)
    if last.quota_cores is not None and throttled is not None:
        style = BAD if throttled >= causes.QUOTA_FRAC else ""
        first.append((f", stopped by the quota {whole_percent(throttled)}", style))
    second: StyledLine = [("pressure (PSI): unavailable", FAINT)]
    if last.psi_scope is not None:
        cpu, io = (
            mean(reading.psi_cpu_some_pct for reading in newest),
            mean(reading.psi_io_some_pct for reading in newest),
        )
        memory = mean(reading.psi_memory_some_pct for reading in newest)
        second = [(f"pressure ({last.psi_scope}): cpu {_pct(cpu)}, io {_pct(io)}, memory {_pct(memory)}", "")]
    return [first, second] if width < _WIDE else [[*first, ("   ", ""), *second]]


def main_line(verdict: Verdict) -> list[StyledLine]:
    """What the main thread did, the largest share first."""
    doing = [f"{name} {100 * share:.0f} %" for name, share in verdict.activities.items() if share >= 0.005]
    return [[("main thread: " + ", ".join(doing[:4]), "")]] if doing else []


def loader_line(reading: RankReading | None) -> list[StyledLine]:
    """All workers in a line."""
    if reading is None:
        return []
    if not reading.workers:
        return [[("no loader workers", "")]]
    kind = "thread" if reading.worker_kind == "thread" else "process"
    plural = "" if len(reading.workers) == 1 else "s" if kind == "thread" else "es"
    used = sum(task.cpu_frac for task in reading.workers)
    return [[(f"loader: {len(reading.workers)} worker {kind}{plural} on {used:.1f} cores", "")]]


def worker_lines(reading: RankReading | None, verdict: Verdict, room: int, *, ascii: bool) -> list[StyledLine]:
    """One line per loader worker, at most ``room`` lines; the last one is for all workers that do not fit."""
    tasks = () if reading is None else reading.workers
    if not tasks or room < 1:
        return []
    summaries = {summary.pid: summary for summary in verdict.workers}
    shown = tasks if len(tasks) <= room else tasks[: room - 1]
    lines = [_worker_line(task, summaries.get(task.pid), ascii) for task in shown]
    rest = tasks[len(shown) :]
    if rest:
        used = [summaries[task.pid].cpu_frac if task.pid in summaries else task.cpu_frac for task in rest]
        lines.append([(f"  +{len(rest)} more: mean {100 * sum(used) / len(used):.0f} % CPU", "")])
    return lines


def verdict_parts(verdict: Verdict, width: int, *, ascii: bool) -> dict[Section, list[StyledLine]]:
    """The sections that change only when the verdict does."""
    lost = verdict.lost_frac
    colour = "" if lost is None else GOOD if not verdict.shares else BAD if lost >= causes.HIGH_LOST else WARN
    confidence = "" if lost is None else f" ({verdict.confidence} confidence)"
    missing = ", ".join(SIGNAL_TITLES.get(signal, signal) for signal in verdict.missing_signals)
    facts = [fact for fact, signal in zip(verdict.evidence, verdict.signals, strict=True) if not _is_shown(signal)]
    return {
        Section.VERDICT: _styled(wrapped(sentence_of(verdict) + confidence, width), f"{HEAD} {colour}".strip()),
        Section.SHARES: _styled(share_lines(verdict, width, ascii=ascii), ""),
        Section.ADVICE: _styled([] if verdict.advice is None else wrapped(verdict.advice, width, SUGGESTION), HEAD),
        Section.EVIDENCE: _styled(listed(facts, width, EVIDENCE), FAINT),
        Section.MISSING: _styled([f"{MISSING}{missing}"] if missing else [], FAINT),
    }


def _is_shown(evidence: SignalValue) -> bool:
    """Whether another section shows the same."""
    return evidence.signal in _SHOWN or (evidence.signal == Signal.WORKERS and evidence.value == 0)


def stall_lines(stalls: Sequence[Stall], now_ns: int, *, alone: bool) -> list[StyledLine]:
    """The newest two stalls, the newest first."""
    lines: list[StyledLine] = []
    for number, stall in enumerate(reversed(stalls[-2:])):
        seconds, ago = (stall.t_end_ns - stall.t_start_ns) / 1e9, (now_ns - stall.t_end_ns) / 1e9
        whose = "" if alone else f" of {name_of_rank(stall.rank, stall.pid)}"
        title = causes.title_of(stall.cause)
        count = f"{len(stalls)} stalls, the last: " if number == 0 and len(stalls) > 1 else "stall: "
        text = f"{count}{format_duration(seconds)}{whose}, {format_duration(max(0.0, ago))} ago, {title}"
        lines.append([(text, "")])
    return lines


def foot_line(readings: Iterable[MachineReading], hint: str) -> StyledLine:
    """What pipetune costs, and the key that ends it; ``readings`` newest first."""
    newest = list(islice(readings, _COSTED))
    seconds = sum(reading.interval_s for reading in newest)
    cost = (
        f"pipetune uses {100 * sum(reading.cost_s for reading in newest) / seconds:.1f} % of a core; "
        if seconds
        else ""
    )
    return [(cost + hint, FAINT)]


def _worker_line(task: TaskReading, summary: WorkerSummary | None, ascii: bool) -> StyledLine:
    used = task.cpu_frac if summary is None else summary.cpu_frac
    delay = task.run_delay_frac if summary is None else summary.run_delay_frac
    waits = {} if summary is None else summary.waits
    notes = []
    if task.wait != RUNNING:
        share = f" {100 * waits[task.wait]:.0f} %" if task.wait in waits else ""
        # Without a compiler's suffix, as in .constprop.0.
        notes.append(f"{task.wait}{share}" + (f" in {task.wchan.split('.')[0]}" if task.wchan else ""))
    if delay is not None and delay >= 0.05:
        notes.append(f"waits for a core {whole_percent(delay)}")
    return [
        (f"  {task.pid:<8}", ""),
        (bar(used, _WORKER_BAR, ascii=ascii), "cyan"),
        (f"{100 * used:4.0f} % CPU  {task.state}  {', '.join(notes)}", BAD if task.state in "DZT" else ""),
    ]


def _styled(lines: Iterable[str], style: str) -> list[StyledLine]:
    return [[(line, style)] for line in lines]


def _pct(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"
