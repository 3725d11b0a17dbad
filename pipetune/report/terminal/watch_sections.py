"""What the sections of the live view of ``watch`` say. No rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from pipetune.diagnosis import causes
from pipetune.records.watch import (
    EMULATED,
    LOADER_WAIT,
    RUNNING,
    MachineReading,
    RankReading,
    Stall,
    TaskReading,
    Verdict,
    WorkerSummary,
)
from pipetune.report.terminal.screen import Line
from pipetune.report.terminal.signs import bar, stretches, timeline_of
from pipetune.report.terminal.watch_text import evidence_lines, name_of_rank, said, share_lines, wrapped
from pipetune.stats.intervals import mean
from pipetune.units import format_duration

BAD, WARN, GOOD, HEAD, FAINT = "red", "yellow", "green", "bold", "dim"
#: The newest readings of the machine that are averaged: of the CPU, so that its figures do not flicker, and of
#: pipetune's own cost.
_SMOOTHED, _COSTED = 4, 120
_LABEL, _FIGURE, _WORKER_BAR = 10, 12, 10
#: Beginnings of evidence that the page shows by itself.
_SHOWN = ("main thread:", "CPU busy", "pressure of", "CPU quota", "no loader workers")
#: Below this width the machine takes two lines.
_WIDE = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A rank's accelerator over the time that its timeline goes back."""

    points: Sequence[float | None]
    seconds: float
    stalled_s: float | None
    """How long the stall that is going on has lasted; ``None``: there is none."""


def title_line(title: str, elapsed_s: float, source: str | None, width: int) -> Line:
    """What is watched, for how long, and what its figures are taken from. The title gives way to what follows it."""
    seen = {EMULATED: ", EMULATED accelerator", LOADER_WAIT: ", no accelerator seen"}.get(source or "", "")
    elapsed = f"{elapsed_s:.0f} s" if elapsed_s < 59.5 else format_duration(elapsed_s)
    rest = f", {elapsed}{seen}"
    return [(title if len(title) + len(rest) <= width else title[: width - len(rest) - 1] + "…", HEAD), (rest, HEAD)]


def rank_lines(verdict: Verdict, track: Track, width: int, *, ascii: bool, alone: bool) -> list[Line]:
    """A rank's utilisation and, below, where it stalled."""
    columns = max(8, width - _LABEL - _FIGURE)
    row, marks = timeline_of(track.points, columns, ascii=ascii)
    fed = verdict.source == LOADER_WAIT
    label = "EMULATED" if verdict.source == EMULATED else "fed" if fed else "GPU"
    share = verdict.util_frac if not fed or verdict.lost_frac is None else 1 - verdict.lost_frac
    figure = "" if share is None else f"{100 * share:4.0f} % {'fed' if fed else 'busy'}"
    if not alone:
        label = f"rank {verdict.rank}" if verdict.rank is not None else f"{verdict.pid}"
    graph: Line = [(f"{label:<{_LABEL}}" + " " * (columns - len(row)), "")]
    graph += [(text, BAD if stalled else GOOD) for text, stalled in stretches(row, marks)]
    graph.append((figure, ""))
    span = f"{track.seconds:.0f} s" if track.seconds < 99.5 else f"{track.seconds / 60:.1f} min"
    below: Line = [(f"{span:<{_LABEL}}", FAINT), (marks.rjust(columns), BAD)]
    if track.stalled_s is not None:
        below.append((f" stall {track.stalled_s:.0f} s", BAD))
    return [graph, below]


def other_ranks_line(verdicts: Sequence[Verdict]) -> list[Line]:
    """The ranks for which there is no room."""
    if not verdicts:
        return []
    known = [verdict.util_frac for verdict in verdicts if verdict.util_frac is not None]
    busy = f", busy {100 * min(known):.0f}..{100 * max(known):.0f} %" if known else ""
    return [[(f"+{len(verdicts)} rank{'' if len(verdicts) == 1 else 's'}{busy}", "")]]


def machine_lines(readings: Iterable[MachineReading], width: int) -> list[Line]:
    """The CPU and the pressure; ``readings`` newest first."""
    newest = list(islice(readings, _SMOOTHED))
    if not newest:
        return []
    last = newest[0]
    busy = mean(reading.cpu_busy_pct for reading in newest)
    idle = mean(reading.cpu_idle_pct for reading in newest)
    iowait = mean(reading.cpu_iowait_pct for reading in newest)
    first: Line = [(f"CPU busy {_pct(busy)}, idle {_pct(idle)}, iowait {_pct(iowait)} of {last.cores:g} cores", "")]
    throttled = mean(reading.throttled_frac for reading in newest)
    if last.quota_cores is not None and throttled is not None:
        first.append((f", quota stops it {100 * throttled:.0f} %", BAD if throttled >= causes.QUOTA_FRAC else ""))
    second: Line = [("pressure: not shown by this kernel", FAINT)]
    if last.psi_scope is not None:
        cpu, io = (
            mean(reading.psi_cpu_some_pct for reading in newest),
            mean(reading.psi_io_some_pct for reading in newest),
        )
        memory = mean(reading.psi_memory_some_pct for reading in newest)
        second = [(f"pressure ({last.psi_scope}): cpu {_pct(cpu)}, io {_pct(io)}, memory {_pct(memory)}", "")]
    return [first, second] if width < _WIDE else [[*first, ("   ", ""), *second]]


def main_line(verdict: Verdict) -> list[Line]:
    """What the main thread did, most first."""
    doing = [f"{name} {100 * share:.0f} %" for name, share in verdict.activities.items() if share >= 0.005]
    return [[("main thread: " + ", ".join(doing[:4]), "")]] if doing else []


def loader_line(reading: RankReading | None) -> list[Line]:
    """All workers in a line."""
    if reading is None:
        return []
    if not reading.workers:
        return [[("no loader workers", "")]]
    kind = "thread" if reading.worker_kind == "thread" else "process"
    plural = "" if len(reading.workers) == 1 else "s" if kind == "thread" else "es"
    used = sum(task.cpu_frac for task in reading.workers)
    return [[(f"loader: {len(reading.workers)} worker {kind}{plural} on {used:.1f} cores", "")]]


def worker_lines(reading: RankReading | None, verdict: Verdict, room: int, *, ascii: bool) -> list[Line]:
    """One line per loader worker, at most ``room``; those that do not fit are told together."""
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


def verdict_parts(verdict: Verdict, width: int, *, ascii: bool) -> dict[str, list[Line]]:
    """The sections that change only with the verdict."""
    lost = verdict.lost_frac
    colour = "" if lost is None else GOOD if not verdict.shares else BAD if lost >= causes.HIGH_LOST else WARN
    told = "" if lost is None else f" ({verdict.confidence} confidence)"
    missing = [signal.split(":")[0] for signal in verdict.missing]
    facts = [fact for fact in verdict.evidence if not fact.startswith(_SHOWN)]
    return {
        "verdict": _styled(wrapped(said(verdict) + told, width), f"{HEAD} {colour}".strip()),
        "shares": _styled(share_lines(verdict, width, ascii=ascii), ""),
        "advice": _styled([] if verdict.advice is None else wrapped(verdict.advice, width, "change: "), HEAD),
        "evidence": _styled(evidence_lines(facts, width), FAINT),
        "missing": _styled([f"not seen: {', '.join(missing)}"] if missing else [], FAINT),
    }


def stall_lines(stalls: Sequence[Stall], now_ns: int, *, alone: bool) -> list[Line]:
    """The newest two stalls, the newest first."""
    lines: list[Line] = []
    for number, stall in enumerate(reversed(stalls[-2:])):
        seconds, ago = (stall.t_end_ns - stall.t_start_ns) / 1e9, (now_ns - stall.t_end_ns) / 1e9
        whose = "" if alone else f" of {name_of_rank(stall.rank, stall.pid)}"
        title = causes.title_of(stall.cause)
        count = f"{len(stalls)} stalls, the last: " if number == 0 and len(stalls) > 1 else "stall: "
        told = f"{count}{format_duration(seconds)}{whose}, {format_duration(max(0.0, ago))} ago, {title}"
        lines.append([(told, "")])
    return lines


def foot_line(readings: Iterable[MachineReading], hint: str) -> Line:
    """What pipetune costs, and the key that ends it; ``readings`` newest first."""
    newest = list(islice(readings, _COSTED))
    seconds = sum(reading.interval_s for reading in newest)
    cost = (
        f"pipetune uses {100 * sum(reading.cost_s for reading in newest) / seconds:.1f} % of a core; "
        if seconds
        else ""
    )
    return [(cost + hint, FAINT)]


def _worker_line(task: TaskReading, summary: WorkerSummary | None, ascii: bool) -> Line:
    used = task.cpu_frac if summary is None else summary.cpu_frac
    delay = task.run_delay_frac if summary is None else summary.run_delay_frac
    waits = {} if summary is None else summary.waits
    told = []
    if task.wait != RUNNING:
        share = f" {100 * waits[task.wait]:.0f} %" if task.wait in waits else ""
        # A compiler's suffix, as in .constprop.0, says nothing to anybody.
        told.append(f"{task.wait}{share}" + (f" in {task.wchan.split('.')[0]}" if task.wchan else ""))
    if delay is not None and delay >= 0.05:
        told.append(f"no core {100 * delay:.0f} %")
    return [
        (f"  {task.pid:<8}", ""),
        (bar(used, _WORKER_BAR, ascii=ascii), "cyan"),
        (f"{100 * used:4.0f} % CPU  {task.state}  {', '.join(told)}", BAD if task.state in "DZT" else ""),
    ]


def _styled(lines: Iterable[str], style: str) -> list[Line]:
    return [[(line, style)] for line in lines]


def _pct(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"
