"""READ THIS FIRST: the frozen data types that travel between the packages.

Finished data is frozen; ``None`` always means "not measured" and never stands for 0; the unit is part of each name.
All times ``*_ns`` are on ``time.monotonic_ns``, which parent and child share because they run on one machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipetune.records.accelerator import AcceleratorSpec as AcceleratorSpec  # noqa: PLC0414 - one of them
from pipetune.records.candidate import Candidate as Candidate  # noqa: PLC0414 - one of them
from pipetune.records.convert import from_dict as from_dict  # noqa: PLC0414 - how they are stored
from pipetune.records.convert import to_dict as to_dict  # noqa: PLC0414
from pipetune.records.goal import THOROUGH as THOROUGH  # noqa: PLC0414
from pipetune.records.goal import Diagnosis as Diagnosis  # noqa: PLC0414
from pipetune.records.goal import Goal as Goal  # noqa: PLC0414
from pipetune.records.prediction import Prediction
from pipetune.records.set_up import SetUp
from pipetune.records.shares import HostShare as HostShare  # noqa: PLC0414
from pipetune.records.shares import RankShare as RankShare  # noqa: PLC0414

#: Version of every JSON object that we write. Raised when a field changes its meaning or goes away.
SCHEMA = 1


#: In place of a model's name: batches are taken, to the device where there is one, and nothing is done with them.
NO_MODEL = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What every candidate of one sweep has in common."""

    dataset: str
    """What the user named: a folder, or a ``synthetic:`` URI."""
    index_path: str
    """The file that lists the images (see :mod:`pipetune.datasets.index`)."""
    accelerator: AcceleratorSpec
    model: str
    image_size: int
    """Edge of the square training crop (px)."""
    precision: str
    """``auto``, ``fp32``, ``amp`` (float16) or ``bf16``: the accelerator's arithmetic, whatever the batches are."""
    seconds: float
    """Length of the timed phase (s)."""
    warmup_limit_s: float
    """The warm-up ends here at the latest, steady or not (s)."""
    cache: str
    """``warm`` or ``cold``: the state the page cache is brought to before the candidate."""
    seed: int
    loader_path: str | None = None
    """The file with the user's ``make_loader`` (:mod:`pipetune.usercode.make_loader`); ``None``: no such loader."""
    ranks: int = 1
    """Training processes that share this host, each with an accelerator and a loader of its own."""
    sync: str = "step"
    """``step``: each step of a rank ends when all ranks have computed it, as in data-parallel training; ``none``: the
    ranks are jobs of their own."""
    bind: str = "none"
    """Cores that a rank may use: ``none``: all; ``even``: its share of them; ``numa``: those of its NUMA node."""
    checkpointing: bool = False
    """The model's activations are computed again in the backward pass, which saves memory."""
    compiled: bool = False
    """The model is compiled by ``torch.compile`` before anything is timed; otherwise its operators run one by one
    (eager)."""
    gpu_memory_limit_bytes: int | None = None
    """Memory of a CUDA device that torch may reserve; ``None``: all that there is."""
    augment: str = "basic"
    """What is done to each image besides decoding: a name in :data:`pipetune.augmentation.recipes.RECIPES`; ``basic``:
    a random resized crop and a flip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One training step as the training loop and the accelerator saw it."""

    t_start_ns: int
    """The loop asked for the batch."""
    data_wait_s: float
    """Blocked in ``next(loader)``."""
    h2d_s: float | None
    """Copying the batch to the device; ``None`` where there is no copy."""
    compute_s: float
    """The accelerator worked on this batch."""
    idle_s: float
    """The accelerator had nothing to run between the step before and this one."""
    t_end_ns: int
    """The accelerator finished this batch."""
    samples: int
    others_s: float = 0.0
    """At the step's end, the accelerator waited for the other ranks to compute the same step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one candidate did in its timed phase; the warm-up and the first batch are not in any rate but those of
    scripts whose workers start anew with each epoch."""

    samples_per_s: float
    """Samples per second in the timed phase (see :attr:`steady_samples_per_s`)."""
    ci95: tuple[float, float]
    """95 % confidence interval of ``samples_per_s``: batch means, widened by the run-to-run noise of the machine."""
    goodput: float | None
    """``samples_per_s`` / the accelerator's max ingestion rate; ``None`` for the ceiling itself."""
    goodput_ci95: tuple[float, float] | None
    """95 % confidence interval of ``goodput``, the ceiling's own uncertainty included."""
    gpu_util_pct: float | None
    """NVML's utilisation, by its values about the timed phase alone; for an emulated accelerator the busy share of its
    timeline; ``None`` on the CPU, and where NVML's values cover less than half of the phase."""
    sm_active_pct: float | None
    """Mean share of the GPU's multiprocessors (SMs) that had work (NVML GPM, Hopper and later)."""
    gpu_mem_bytes: int | None
    """Most memory in use on the GPU (NVML; all processes), or what torch held where NVML cannot be read."""
    data_wait_frac: float
    """Share of the timed phase in which the training loop was blocked in ``next(loader)``."""
    accelerator_idle_frac: float
    """Share of the timed phase in which the accelerator had nothing to run."""
    h2d_frac: float | None
    """Share of the timed phase in which batches were copied to the device; ``None`` where there is no copy."""
    cpu_busy_pct: float | None
    """Busy share of the cores that the child may use, whichever process ran on them; busy + idle + iowait = 100."""
    cpu_idle_pct: float | None
    """Idle share of the same cores."""
    iowait_pct: float | None
    """Share of the same cores in iowait; unreliable, and never used as proof."""
    psi_cpu_some_pct: float | None
    """Share of the timed phase in which some task of the machine waited for a core (pressure stall information)."""
    psi_io_some_pct: float | None
    """The same of waiting for storage."""
    cores_used: float | None
    """Cores that loading takes: CPU seconds of the child and its loader workers per second of the timed phase, without
    what the training step itself takes (``step_cores``)."""
    cpu_s_per_1000_samples: float | None
    """CPU time of loading, per 1000 samples."""
    run_delay_frac: float | None
    """Time that the child's processes waited for a core, per second of the timed phase (can exceed 1)."""
    read_bytes_per_sample: float | None
    """Fetched from storage by the same processes; what came from the page cache does not count."""
    minor_faults_per_sample: float | None
    """Page faults of the same processes that needed no storage: the kernel gave them new memory."""
    context_switches_per_sample: float | None
    """How often a thread of the same processes was put on a core."""
    pss_bytes: int | None
    """Memory of the child and its loader workers, shared pages counted once, at the end of the timed phase."""
    open_s: float
    """Constructing the loader."""
    time_to_first_batch_s: float
    """Loader construction to first batch; part of a rate only where it comes with each epoch."""
    steps: int
    """Training steps in the timed phase."""
    samples: int
    """Samples in the timed phase."""
    timed_s: float
    """Length of the timed phase (s)."""
    windows: int
    """Windows of equally many steps that the timed phase was cut into, for the interval."""
    warmup_batches: int
    """Batches before the timed phase, which count for nothing."""
    steady: bool
    """Two successive warm-up windows agreed before timing began."""
    machine_speed_before: float
    """MB/s of the fixed decode loop just before the loader was opened (see :mod:`pipetune.measure.machine_speed`)."""
    machine_speed_after: float
    """The same after the loader was closed."""
    cache_resident_frac: float | None
    """Share of the images' pages found in the page cache before the candidate started."""
    sampler_readings: int
    """Readings in the timed phase."""
    sampler_core_frac: float
    """The sampler's own cost: CPU seconds per second of the timed phase."""
    warnings: tuple[str, ...] = ()
    """Reasons to doubt this measurement, one sentence each."""
    versions: dict[str, str] = field(default_factory=dict)
    """What the child really used (Python, torch, the backend, a driver) → its version."""
    step_slower_frac: float | None = None
    """By which share steps computed longer while the loader ran than without it, copies left out."""
    other_cores: float | None = None
    """Cores that other visible processes used while the child ran; only those that ran throughout count."""
    other_process: str | None = None
    """Name and PID of the busiest of them, where they used any."""
    machine_cpu_speed: float | None = None
    """MB per CPU second of the fixed decode loop, mean of both readings: other processes on the cores do not lower it.
    ``None``: measured before pipetune kept it."""
    step_cores: float | None = None
    """Cores that the training step itself takes at this rate (launching kernels, or computing on the CPU), from the CPU
    time per sample of the ceiling, which needs no loader. ``None``: unknown, and then part of ``cores_used``."""
    copy_bytes_per_s: float | None = None
    """Of the ceiling: the rate of copies from page-locked memory to the device, while nothing else runs."""
    batch_shape: tuple[int, ...] | None = None
    """Shape of the images of a batch."""
    gpu_clock_mhz: float | None = None
    """Mean clock of the GPU's multiprocessors during the timed phase (NVML)."""
    gpu_power_w: float | None = None
    """Mean power draw of the GPU during the timed phase (W): by NVML's energy counter where it says enough, else the
    mean of what the driver gives as power. Of several ranks the mean over their GPUs."""
    gpu_slowed_pct: float | None = None
    """Share of the timed phase in which heat or the hardware itself lowered the GPU's clocks (NVML)."""
    gpu_power_capped_pct: float | None = None
    """Share of the timed phase in which the GPU was at its power limit (NVML)."""
    ended_early: bool = False
    """The timed phase ended as soon as its question was answered; ``ci95`` allows for the looks that this took."""
    gpu_util_ci95: tuple[float, float] | None = None
    """95 % confidence interval of ``gpu_util_pct``; ``None``: no utilisation, or measured before pipetune kept it."""
    within_error_frac: float | None = None
    """Relative standard error of ``samples_per_s`` from the scatter within the run alone; ``None``: measured before
    pipetune kept it."""
    ranks: tuple[RankShare, ...] = ()
    """Each of several ranks; ``()``: there is one. Rates, cores, memory and bytes are then those of all ranks together,
    ``goodput``, ``steps`` and ``warmup_batches`` are the slowest rank's, and shares of the time are means over the
    ranks."""
    others_wait_frac: float | None = None
    """Share of the timed phase in which accelerators waited for other ranks; ``None``: there is one rank."""
    hosts: tuple[HostShare, ...] = ()
    """Each of several hosts that measured at the same time; ``()``: there is one. All else is the slowest host's."""
    steady_samples_per_s: float | None = None
    """Of a script whose loader starts its workers anew with each epoch: the rate within an epoch. ``samples_per_s``,
    ``goodput`` and the shares of waiting are over whole epochs then. ``None``: workers stay, or there are none."""
    epoch_start_s: float | None = None
    """Of the same: by how much the workers' start and end make each epoch longer, the median of several starts (s)."""
    jpeg_util_pct: float | None = None
    """Mean utilisation of the GPU's JPEG engines during the timed phase (NVML). Of several ranks the mean over their
    GPUs; ``None``: no such engine, or no driver that tells."""
    pcie_rx_bytes_per_s: float | None = None
    """What the GPU received over PCIe (host to device) during the timed phase, by NVML's byte counter between its first
    and last reading in it. Of several ranks all GPUs together."""
    pcie_tx_bytes_per_s: float | None = None
    """What the GPU sent over PCIe (device to host), measured alike."""
    energy_j_per_1000_samples: float | None = None
    """Energy that the GPU took per 1,000 samples (J): its mean power between the first and the last change of NVML's
    energy counter that were seen in the timed phase, divided by the rate. The whole GPU's, whoever used it; of several
    ranks all GPUs together, the CPU's not included. ``None``: no counter, a MIG slice, or a timed phase too short
    (:mod:`pipetune.measure.gpu_energy`)."""
    energy_ci95: tuple[float, float] | None = None
    """95 % confidence interval of ``energy_j_per_1000_samples``: the rate's, widened by how late the counter may be."""
    set_up: SetUp | None = None
    """What came before the loader was opened, stage by stage (s); ``None``: measured before pipetune kept it, or in a
    script that was running already."""

    @property
    def full_samples_per_s(self) -> float | None:
        """What the accelerators take together when batches are always ready (samples/s); ``None``: it is not known."""
        parts = [share.samples_per_s / share.goodput for share in self.ranks if share.goodput]
        if parts and len(parts) == len(self.ranks):
            return sum(parts)
        return self.samples_per_s / self.goodput if self.goodput else None


def slowest_of(measurement: Measurement) -> RankShare | None:
    """The rank with the lowest goodput, or rate where there is none; ``None``: there is one rank.

    It is the one whose steps are kept, so ``steps`` and ``warmup_batches`` of the measurement count its own.
    """
    return min(
        measurement.ranks,
        key=lambda share: share.samples_per_s if share.goodput is None else share.goodput,
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a candidate has no measurement."""

    kind: str
    """``not_installed``, ``crashed``, ``killed``, ``hung``, ``out_of_memory``, ``bad_image``, ``usage``, ``error`` …
    (see :mod:`pipetune.measure.failures` and :mod:`pipetune.candidates.fit`)."""
    phase: str
    """``spawn``, ``open``, ``first_batch``, ``warmup``, ``timed`` or ``close``."""
    message: str
    """What went wrong, for a person."""
    hint: str | None = None
    """What to try."""
    stderr_tail: str = ""
    """The end of the child's standard error."""
    needed: int | None = None
    """What a candidate needs that does not fit: bytes of memory or shared memory, or a number of open files; ``None``:
    another kind of failure."""
    available: int | None = None
    """What there was of it, in the same unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One candidate, measured once. Exactly one of ``measurement`` and ``failure`` is set."""

    candidate: Candidate
    role: str
    """``ceiling`` (replayed batches), ``baseline`` (the PyTorch default) or ``candidate``."""
    attempt: int
    started_unix_s: float
    wall_s: float
    """All of it: page cache, process start, imports, warm-up, timed phase, end."""
    measurement: Measurement | None = None
    failure: Failure | None = None
    block: int = 0
    """Candidates that are compared closely are measured in blocks, one after the other: 1, 2 …; 0: before that."""
    forked: bool = False
    """It ran in a fork of a process that had imported torch, or in a script in which others had run before, and not in
    a new process."""
    why: str | None = None
    """Why it was measured at this point of the search."""
    part: str | None = None
    """Of ``pipetune explain``: what was measured (:attr:`pipetune.records.explanation.Part.name`)."""
    predicted: Prediction | None = None
    """What was expected of it before it was measured; ``None``: nothing was, or an earlier version measured it."""
    other_batch: bool = False
    """A ceiling with another batch size than the candidates have (``--ceilings``)."""

    @property
    def is_ceiling(self) -> bool:
        """Whether it is the ceiling that candidates are stated against."""
        return self.role == "ceiling" and not self.other_batch
