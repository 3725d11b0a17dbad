"""The frozen data types of ``pipetune watch``: what one reading saw, and what a window of readings came to.

The rules of :mod:`pipetune.records.sweep` hold: ``None`` is "not measured" and never 0, units are part of the names,
times ``*_ns`` are on ``time.monotonic_ns``. A *share* is a part of the lost time, a *frac* a part of the wall time or
of a core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipetune.records.evidence import SignalValue
from pipetune.records.sweep import GpuReading, TreeReading

#: What a sleeping thread waits for, derived from the kernel function it sleeps in (:mod:`pipetune.sampler.job.waits`).
RUNNING = "running"
DISK = "disk"
NETWORK = "network"
PIPE = "pipe"
"""A pipe, a local socket or any set of descriptors: how a process waits for another one's message."""
LOCK = "lock"
SLEEP = "sleep"
OTHER = "other"

#: Where a rank's busy time comes from, the best first.
NVML = "nvml"
EMULATED = "emulated"
LOADER_WAIT = "loader wait"
"""No accelerator can be seen: the main thread's waiting for its loader stands in for the lost time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReading:
    """One process or thread since the reading before."""

    pid: int
    """The process; of a thread its own number (TID)."""
    name: str
    """As the kernel knows it (comm), at most 15 characters."""
    state: str
    """One letter at the instant of the reading: R running, S sleeping, D disk sleep, T stopped, Z ended."""
    wait: str
    """What it waited for at that instant: one of the constants above; ``running`` when it did not."""
    wchan: str | None
    """The kernel function it slept in; ``None``: it ran, or the kernel hides it."""
    cpu_frac: float
    """Cores used since the reading before (1: one core all the time)."""
    run_delay_frac: float | None
    """Share of the time in which it was runnable and had no core."""
    read_bytes: int | None
    """Fetched from block devices since the reading before."""
    read_chars: int | None
    """Read by system calls, page cache hits and pipes included."""
    write_chars: int | None
    """Written by system calls."""
    starting: bool = False
    """A loader worker that has not begun to load: it still imports what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSample:
    """What a thread was doing when py-spy sampled its stack."""

    pid: int
    activity: str
    """One of the constants of :mod:`pipetune.sampler.stacks.activity`."""
    where: str
    """The frame that tells, e.g. ``collate (train.py:42)``."""
    active: bool | None = None
    """The thread was on a core at the moment of the stack, some 20 ms after the reading; ``None``: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReading:
    """One training process (a rank of a distributed job, or the only one) and its loader since the reading before."""

    t_ns: int
    interval_s: float
    pid: int
    rank: int | None
    """From ``RANK`` of its environment; ``None`` outside a distributed job."""
    main: TaskReading
    """The main thread alone, where the training loop runs."""
    process_cpu_frac: float
    """Cores that all threads of the training process used, loader threads included."""
    workers: tuple[TaskReading, ...]
    """Of more than eight every other one is read each time: the rest are as they were at the reading before."""
    worker_kind: str | None
    """``process`` or ``thread``; ``None``: no loader workers."""
    youngest_worker_s: float | None
    """Age of the worker that was started last."""
    pin: TaskReading | None
    """The thread that copies batches to page-locked memory (``pt_data_pin``)."""
    has_sockets: bool | None
    """A worker (or, without workers, the process) has a connection to another address; ``None``: not asked for."""
    source: str
    """Where ``busy_frac`` comes from: ``nvml``, ``emulated`` or ``loader wait``."""
    busy_frac: float | None
    """Share of the interval in which the accelerator ran anything; ``None`` where none can be seen."""
    active_frac: float | None
    """How much of the accelerator was at work while it was busy, averaged over the interval (SM activity)."""
    idle_now: bool | None
    """The accelerator was idle at this very instant; known for emulated ones only."""
    gpu: GpuReading | None
    stack: StackSample | None
    tree: TreeReading | None
    """The process and its descendants, summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReading:
    """What all ranks share, since the reading before."""

    t_ns: int
    interval_s: float
    cpu_busy_pct: float | None
    cpu_idle_pct: float | None
    cpu_iowait_pct: float | None
    """Shown as a supporting number; proc(5) calls it unreliable."""
    psi_cpu_some_pct: float | None
    psi_io_some_pct: float | None
    psi_memory_some_pct: float | None
    psi_scope: str | None
    """Whose pressure that is: ``cgroup`` (the job's own) or ``machine``; ``None``: unavailable."""
    cores: float
    """Cores that the job may use: the smaller of its affinity and its cgroups' CPU quota."""
    quota_cores: float | None
    throttled_frac: float | None
    """Share of the interval in which the quota stopped the job's group; ``None`` without a quota."""
    net_rx_bytes: int | None
    """Received by all network interfaces, the loopback included, since the reading before."""
    cost_s: float
    """CPU time that pipetune itself used since the reading before, its py-spy processes included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReading:
    """One tick of watch."""

    machine: MachineReading
    ranks: tuple[RankReading, ...]


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
    stacks: int
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
