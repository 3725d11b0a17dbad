"""One family of records for what a reading of a machine, a process, an accelerator or a job found.

A *reading* covers the time since the reading before it. The rules of :mod:`pipetune.records.sweep` hold: ``None`` is
"not measured" and never 0, units are part of the names, times ``*_ns`` are on ``time.monotonic_ns``. A *frac* is a part
of the interval or of a core.
"""

from __future__ import annotations

from dataclasses import dataclass

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
"""No accelerator can be seen: what the main thread does instead of training stands in for the lost time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLoad:
    """How busy the cores were, and how often a task waited for them, for storage or for memory (% of the interval)."""

    t_ns: int
    interval_s: float
    cpu_busy_pct: float | None
    """Of the cores that the process may use; busy + idle + iowait = 100 up to rounding."""
    cpu_idle_pct: float | None
    cpu_iowait_pct: float | None
    """proc(5) calls this value unreliable: shown as a supporting number, never used as proof."""
    psi_cpu_some_pct: float | None
    """Share of the interval in which some task waited for a core (pressure stall information)."""
    psi_io_some_pct: float | None
    psi_memory_some_pct: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReading(MachineLoad):
    """What all ranks of a job share."""

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
    counted_cores: int | None = None
    """Cores that the busy and idle shares are of, which a quota leaves as they are; ``None``: as many as ``cores``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusySpan:
    """A stretch of time and how busy a GPU was in it: a sample of its driver's, which is known up to a second later, or
    what follows from the changes of the driver's newest figure."""

    t_start_ns: int
    t_end_ns: int
    busy_frac: float
    """Share of the stretch in which any kernel ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One reading of one GPU through NVML. A value that this GPU or driver does not offer is ``None``."""

    util_pct: float | None = None
    """Share of the sample period in which any kernel ran; the newest figure, of a time that can have ended a second
    before. Not a measure of how much work was done."""
    mem_used_bytes: int | None = None
    sm_active_pct: float | None = None
    """Share of multiprocessors with work, averaged since the last reading (NVML GPM, Hopper and later)."""
    jpeg_util_pct: float | None = None
    """Utilisation of the hardware JPEG engines: the driver's figure, or where it has none the mean of GPM's."""
    pcie_rx_bytes: int | None = None
    """Received over PCIe since the counter was last asked (host to device); ``None`` in ticks that do not ask it."""
    pcie_tx_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """The driver's energy counter, which begins when the driver is loaded; ``None`` in ticks that do not ask it."""
    throttled_pct: float | None = None
    """Share of the time since the last reading in which power or heat lowered the clocks: the larger of the two below,
    which older run folders lack."""
    slowed_pct: float | None = None
    """Share of that time in which heat or the hardware itself (a power brake) lowered the clocks: a fault."""
    power_capped_pct: float | None = None
    """Share of that time at the power limit that the driver keeps, as many healthy GPUs are under full load."""
    sm_clock_mhz: int | None = None
    """Clock of the multiprocessors at the reading."""
    max_sm_clock_mhz: int | None = None
    """The highest that this GPU has."""
    power_limit_w: float | None = None
    """The power limit that the driver keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReading:
    """A process and its descendants, summed. Counters are totals of the processes alive now plus those seen to end."""

    processes: int
    cpu_s: float
    """User and system time."""
    run_delay_s: float | None
    """Time spent runnable but waiting for a core (``schedstat``)."""
    minor_faults: int
    context_switches: int | None
    read_bytes: int | None
    """Bytes fetched from storage, page cache hits excluded (``/proc/PID/io``)."""
    rss_bytes: int
    in_disk_sleep: int
    """Processes in state D at this instant."""


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
    """The frame that shows the activity, e.g. ``collate (train.py:42)``."""
    active: bool | None = None
    """The thread was on a core at the moment of the stack, some 20 ms after the reading; ``None``: unknown."""
    in_python: bool | None = None
    """It held the interpreter's lock (GIL): it ran Python, and no native code that computes without it; ``None``:
    unknown."""
    unseen: str | None = None
    """The activity that it counts as where no accelerator can be seen; ``None``: the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSharing:
    """Other processes that compute on a rank's GPU."""

    processes: tuple[str, ...]
    """What they are called, with their PIDs, e.g. ``notebook (4711)``."""
    others_frac: float | None
    """Share of the interval in which they computed; ``None``: the driver does not tell."""


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
    """Share of the interval in which the accelerator ran anything; ``None`` where none can be seen. On a GPU that
    others use as well: anything of this job, as far as the driver tells them apart."""
    active_frac: float | None
    """How much of the accelerator was at work while it was busy, averaged over the interval (SM activity)."""
    idle_now: bool | None
    """The accelerator was idle at this very instant; known for emulated ones only."""
    gpu: GpuReading | None
    stack: StackSample | None
    tree: TreeReading | None
    """The process and its descendants, summed."""
    busy_spans: tuple[BusySpan, ...] = ()
    """What the driver has reported since the reading before, of times that may lie before this interval."""
    sharing: GpuSharing | None = None
    """``None``: no other process is known to compute on its GPU."""
    threads: tuple[TaskReading, ...] = ()
    """Threads of the process that compute beside its main one, at most 16; only where it has no loader workers."""
    age_s: float | None = None
    """Since the process began (s)."""
    packed: str | None = None
    """What the packed files are called that its loader reads (``RecordIO files``); ``None``: none has been seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReading:
    """One tick of watch."""

    machine: MachineReading
    ranks: tuple[RankReading, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(MachineLoad):
    """A reading as a run folder keeps it: one line of a timeline, of a sweep, a watch and an observed loop alike."""

    tree: TreeReading | None
    gpu: GpuReading | None
    tick_cost_s: float
    """CPU time that the reading cost pipetune, everything since the one before included."""


def timeline_reading(
    load: MachineLoad,
    *,
    t_ns: int,
    interval_s: float,
    tree: TreeReading | None,
    gpu: GpuReading | None,
    tick_cost_s: float,
) -> Reading:
    """The reading that a run folder keeps.

    Args:
        load: of the machine; its time and interval are replaced by those that follow.
        t_ns: when the processes were read.
        interval_s: since they were read before.
        tree: the processes, summed.
        gpu: their GPU.
        tick_cost_s: CPU time that the reading cost.
    """
    return Reading(
        t_ns=t_ns,
        interval_s=interval_s,
        cpu_busy_pct=load.cpu_busy_pct,
        cpu_idle_pct=load.cpu_idle_pct,
        cpu_iowait_pct=load.cpu_iowait_pct,
        psi_cpu_some_pct=load.psi_cpu_some_pct,
        psi_io_some_pct=load.psi_io_some_pct,
        psi_memory_some_pct=load.psi_memory_some_pct,
        tree=tree,
        gpu=gpu,
        tick_cost_s=tick_cost_s,
    )
