"""The frozen data types of ``pipetune watch``: what one reading saw, and what a window of readings came to.

The rules of :mod:`pipetune.records.sweep` hold: ``None`` is "not measured" and never 0, units are part of the names,
times ``*_ns`` are on ``time.monotonic_ns``. A *share* is a part of the lost time, a *frac* a part of the wall time or
of a core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipetune.records.evidence import SignalValue


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseShare:
    """One cause of lost time."""

    cause: str
    """One of the constants of :mod:`pipetune.diagnosis.causes`."""
    share: float
    """Of the lost time (0..1); all shares of a verdict sum to 1."""
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """What one loader worker did in a window (0..1 each)."""

    pid: int
    cpu_frac: float
    run_delay_frac: float | None
    waits: dict[str, float]
    """Waited for → share of the window."""
    state: str
    """At the last reading."""
    wchan: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why one rank's accelerator lost time in one window."""

    rank: int | None
    pid: int
    seconds: float
    source: str
    """What the lost time was derived from: ``nvml``, ``emulated`` or ``loader wait``."""
    util_frac: float | None
    """Share of the window in which the accelerator was busy; ``None`` where none can be seen."""
    lost_frac: float | None
    """Share of the window that is lost; ``None``: unknown."""
    lost_ci95: tuple[float, float] | None
    cause: str
    """The headline: the largest cause, or ``healthy``, or ``undetermined``."""
    confidence: str
    """``high``, ``medium`` or ``low``."""
    shares: tuple[CauseShare, ...]
    """Largest first; empty where nothing was lost."""
    sentence: str
    evidence: tuple[str, ...]
    advice: str | None
    missing: tuple[str, ...]
    """Signals that were unavailable, each with what would provide it."""
    activities: dict[str, float]
    """What the main thread did → share of the window."""
    workers: tuple[WorkerSummary, ...]
    looks: int
    """Number of readings."""
    stacks: int
    """Number of stacks of the main thread."""
    signals: tuple[SignalValue, ...] = ()
    """The signal and the number behind each line of ``evidence``, in the same order."""
    missing_signals: tuple[str, ...] = ()
    """The :class:`Signal` that each line of ``missing`` is about, in the same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A time in which a rank's accelerator was idle."""

    rank: int | None
    pid: int
    t_start_ns: int
    t_end_ns: int
    lost_s: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a stretch of readings came to. ``verdicts`` has one per rank, the worst first."""

    number: int
    started_unix_s: float
    seconds: float
    verdicts: tuple[Verdict, ...]
    stalls: tuple[Stall, ...]
    """Those that ended in this window."""
    cpu_busy_pct: float | None
    cpu_idle_pct: float | None
    cpu_iowait_pct: float | None
    psi_cpu_some_pct: float | None
    psi_io_some_pct: float | None
    psi_memory_some_pct: float | None
    psi_scope: str | None
    throttled_frac: float | None
    cores: float
    own_core_frac: float
    """What pipetune cost, as a share of one core."""
    own_rss_bytes: int | None
    notes: tuple[str, ...] = ()
    """What went wrong or changed: a GPU that was lost, workers that were started anew, how a GPU was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStart:
    """What is watched, how and where: the first line of a log, and ``run.json`` of the run folder."""

    pipetune: str
    """Version of pipetune."""
    pid: int
    """The watched process; of a distributed job the one that was found first."""
    title: str
    job_command: tuple[str, ...]
    """The job's arguments."""
    found: str
    """How the job was found."""
    interval_s: float
    """Between two readings."""
    window_s: float
    """Length of a window."""
    unix_s: float
    """This instant, in seconds since 1970."""
    monotonic_ns: int
    """The same instant on the clock of all ``*_ns``."""
    host: dict[str, Any]
    """The machine: see :class:`pipetune.machine.host.Host`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResult:
    """What a watch came to: the last line of a log, and ``result.json`` of the run folder."""

    reason: str
    """Why the watch ended."""
    verdicts: tuple[Verdict, ...]
    """Of the whole run, one per rank, the worst first."""
    stalls: int
    """Number of stalls."""
    stalled_s: float
    """Length of all stalls."""
    own_core_frac: float | None = None
    """What pipetune cost, as a share of one core."""
    own_rss_bytes: int | None = None
    """Memory of pipetune."""
    job_exit_code: int | None = None
    """Of a job that pipetune started."""
    below: str | None = None
    """Why ``--fail-under`` was not met."""
