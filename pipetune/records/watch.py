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
    """95 % confidence interval of ``share``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """What one loader worker did in a window (0..1 each)."""

    pid: int
    """The process; of a thread its own number (TID)."""
    cpu_frac: float
    """Share of a core that it used."""
    run_delay_frac: float | None
    """Share of the window in which it was ready to run and had no core."""
    waits: dict[str, float]
    """What it waited for (``disk``, ``network``, ``pipe``, ``lock`` …) → share of the window."""
    state: str
    """The kernel's letter for its state at the last reading: R running, S sleeping, D disk sleep …"""
    wchan: str | None
    """The kernel function in which it slept then; ``None``: it ran, or the kernel hides it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why one rank's accelerator lost time in one window."""

    rank: int | None
    """Number of the rank; ``None`` outside a distributed job."""
    pid: int
    """The training process."""
    seconds: float
    """Time that the readings cover."""
    source: str
    """What the lost time was derived from: ``nvml``, ``emulated`` or ``loader wait``."""
    util_frac: float | None
    """Share of the window in which the accelerator was busy; ``None`` where none can be seen."""
    lost_frac: float | None
    """Share of the window that is lost; ``None``: unknown."""
    lost_ci95: tuple[float, float] | None
    """95 % confidence interval of ``lost_frac``."""
    cause: str
    """The headline: the known cause with the largest share. Where less than 5 % of the time is lost:
    ``accelerator_bound``, or ``power_or_thermal_throttled``. ``undetermined``: no known cause is clear.
    ``not_started``: no training was seen."""
    confidence: str
    """``high``, ``medium`` or ``low``."""
    shares: tuple[CauseShare, ...]
    """Largest first; empty where nothing was lost."""
    sentence: str
    """What was found, in words."""
    evidence: tuple[str, ...]
    """The figures that it rests on, one line each."""
    advice: str | None
    """What to change, with the number that was computed for it; ``None``: nothing is known to help."""
    missing: tuple[str, ...]
    """Signals that were unavailable, each with what would provide it."""
    activities: dict[str, float]
    """What the main thread did → share of the window."""
    workers: tuple[WorkerSummary, ...]
    """The loader workers that lived at the last reading."""
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
    """Number of the rank; ``None`` outside a distributed job."""
    pid: int
    """The training process."""
    t_start_ns: int
    """When it began."""
    t_end_ns: int
    """When it ended."""
    lost_s: float
    """How long the accelerator was idle in between; less than that time where it also worked."""
    cause: str
    """Why the accelerator was idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a stretch of readings came to. ``verdicts`` has one per rank, the worst first."""

    number: int
    """1 for the first window."""
    started_unix_s: float
    """When it began, in seconds since 1970."""
    seconds: float
    """Its length."""
    verdicts: tuple[Verdict, ...]
    """One per rank, the worst first."""
    stalls: tuple[Stall, ...]
    """Those that ended in this window."""
    cpu_busy_pct: float | None
    """Busy share of the cores that the job may use, whichever process ran on them; busy + idle + iowait = 100."""
    cpu_idle_pct: float | None
    """Idle share of the same cores."""
    cpu_iowait_pct: float | None
    """Share of the same cores in iowait; unreliable, and never used as proof."""
    psi_cpu_some_pct: float | None
    """Share of the window in which some task waited for a core (pressure stall information)."""
    psi_io_some_pct: float | None
    """The same of waiting for storage."""
    psi_memory_some_pct: float | None
    """The same of waiting for memory."""
    psi_scope: str | None
    """Whose tasks the pressure is of: the job's own (``cgroup``) or all (``machine``); ``None``: unavailable."""
    throttled_frac: float | None
    """Share of the window in which a CPU quota stopped the job; ``None`` without a quota."""
    cores: float
    """Cores that the job may use: the smaller of its affinity and its CPU quota."""
    own_core_frac: float
    """What pipetune cost, as a share of one core."""
    own_rss_bytes: int | None
    """Memory of pipetune (RSS)."""
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
    """Name of the job."""
    job_command: tuple[str, ...]
    """The job's command line; what looks like a secret is ``***`` (see :mod:`pipetune.records.redact`)."""
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
