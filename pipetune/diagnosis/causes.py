"""The causes of lost accelerator time, one table for ``sweep`` and ``watch``: names, words, thresholds, advice.

Everything that names a cause reads :data:`CAUSES`: the diagnosis of a sweep's candidates, the verdicts of a watch, the
figures, the page, the terminal and the manual. Thresholds whose source is "own" were set on the labelled jobs of
``benchmarks/watch/watch_verdicts.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

HEALTHY = "accelerator_bound"
CPU_DECODE = "cpu_decode_bound"
CPU_STARVED = "cpu_starved"
CONTENTION = "contention"
AUGMENTING = "augmenting_on_device"
DISK = "disk_fetch_bound"
NETWORK = "network_fetch_bound"
NO_WORKERS = "no_workers"
WORKER_START = "worker_startup"
MAIN_PYTHON = "main_process_python"
H2D_COPY = "host_to_device_copy"
SMALL_BATCH = "batch_too_small"
COMMUNICATION = "communication_bound"
CHECKPOINT = "checkpoint_or_evaluation"
THROTTLED = "power_or_thermal_throttled"
SHARED = "accelerator_shared"
DATA_WAIT = "data_wait"
NOT_INPUT = "not_the_input"
UNDETERMINED = "undetermined"
NOT_STARTED = "not_started"

#: Names of a sweep's causes in runs stored before both commands shared this table -> today's.
OLD_NAMES = {
    "cpu_bound": CPU_DECODE,
    "too_few_workers": CPU_DECODE,
    "other_load": CPU_STARVED,
    "disk_bound": DISK,
}

# Shares are of the wall time (0..1) unless the row in the table says otherwise.
HEALTHY_LOST = 0.05
HIGH_LOST = 0.20
MIN_SECOND = 0.25
MIN_READINGS = 8
MIN_HEADLINE = 0.35
MAX_UNDETERMINED = 0.45
CORES_BUSY_PCT = 88.0
OWN_SHARE = 0.75
WORKERS_BUSY_FRAC = 0.80
IDLE_WORKERS = 0.10
QUOTA_FRAC = 0.05
DISK_PSI_PCT = 20.0
SURE_DISK_PSI_PCT = 5.0
DISK_BYTES = 4096
NETWORK_BYTES_PER_S = 50e3
INLINE_READ_BYTES_PER_S = 1e6
YOUNG_WORKER_S = 1.0
UNDERFILLED = 0.5
THROTTLED_FRAC = 0.05
SHARED_FRAC = 0.05

_OWN = "own"
_XPROF = "the input-pipeline analysis of TensorFlow Profiler and xprof calls 5 % moderately, 20 % highly input bound"
SWEEP, WATCH, STALLS = "sweep", "watch", "stalls of a timeline"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit by which a cause is recognised."""

    value: float
    meaning: str
    """A clause with a format field for the value, e.g. ``at least {:.0%} of the time``."""
    source: str
    """Where the number comes from; ``own``: set on the labelled jobs."""

    @property
    def text(self) -> str:
        """The clause with the number in it."""
        return self.meaning.format(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause of lost accelerator time."""

    name: str
    """Its name in JSON, CSV and Prometheus labels."""
    title: str
    """Its name in tables and legends."""
    colour: str
    """Key of :data:`pipetune.plot.style.COLOURS`; related causes share one."""
    explanation: str
    """What happens, in one sentence."""
    advice: str | None
    """What to do about it in general; ``None``: nothing about the input pipeline. Diagnoses add the numbers."""
    named_by: tuple[str, ...]
    """The commands that can name it."""
    thresholds: tuple[Threshold, ...] = ()


#: Thresholds that belong to no single cause.
GENERAL = (
    Threshold(HIGH_LOST, "a pipeline that loses {:.0%} of the time or more is called highly input bound", _XPROF),
    Threshold(MIN_SECOND, "a second cause is named beside the first if it has at least {:.0%} of the lost time", _OWN),
)

_ROWS = (
    Cause(
        name=HEALTHY, title="the accelerator is the limit", colour="grey", named_by=(SWEEP, WATCH), advice=None,
        explanation="The accelerator is busy nearly all the time: the input pipeline is fast enough.",
        thresholds=(Threshold(HEALTHY_LOST, "less than {:.0%} of the time is lost", _XPROF),),
    ),
    Cause(
        name=CPU_DECODE, title="decoding on the CPU", colour="orange", named_by=(SWEEP, WATCH),
        explanation="The loader workers are busy decoding and preparing samples, and the accelerator waits for them.",
        advice="More loader workers while cores are free; otherwise a decoder that takes less CPU time per image, or "
               "augmenting on the device.",
        thresholds=(
            Threshold(CORES_BUSY_PCT, "sweep: all usable cores count as busy from {:.0f} % on",
                      "SageMaker Debugger's rule is 90 % of one core; this is a mean of all cores, so it is lower"),
            Threshold(WORKERS_BUSY_FRAC, "sweep: the workers are saturated when each uses {:.0%} of a core", _OWN),
            Threshold(IDLE_WORKERS, "watch: workers that are busy less than {:.0%} of the time explain no wait", _OWN),
        ),
    ),
    Cause(
        name=CPU_STARVED, title="waiting for a CPU core", colour="yellow", named_by=(SWEEP, WATCH),
        explanation="Loader workers or the training process are ready to run and get no core: other processes, a CPU "
                    "quota or too many workers take the cores.",
        advice="Free the cores, raise the CPU quota, or use no more workers than there are cores.",
        thresholds=(
            Threshold(OWN_SHARE, "sweep: all cores are busy and loading uses less than {:.0%} of them", _OWN),
            Threshold(QUOTA_FRAC, "watch: the quota is the reason when it stops the job {:.0%} of the time", _OWN),
        ),
    ),
    Cause(
        name=CONTENTION, title="steps slowed by the loader", colour="grey", named_by=(SWEEP,),
        explanation="The accelerator never waits for a batch, but its steps are slower while the loader runs, because "
                    "both compete for the CPU and its memory.",
        advice="Fewer loader workers, or a loader that takes less CPU time and memory bandwidth (uint8 batches).",
    ),
    Cause(
        name=AUGMENTING, title="augmenting on the device", colour="grey", named_by=(SWEEP,),
        explanation="The accelerator never waits for a batch, but its steps are longer, because it augments the images "
                    "of each batch first.",
        advice="Augment in the workers (transforms_on=worker) where cores are free for it.",
    ),
    Cause(
        name=DISK, title="reading from disk", colour="blue", named_by=(SWEEP, WATCH),
        explanation="Loader workers wait for storage.",
        advice="Keep the images in memory or on a faster disk.",
        thresholds=(
            Threshold(DISK_PSI_PCT, "sweep: some task waits for storage at least {:.0f} % of the time (PSI io some)",
                      "own: two processes that read from a disk gave 51 %, while iowait was 0.1 %"),
            Threshold(DISK_BYTES, "sweep: and the loader reads at least {:.0f} bytes per sample from it",
                      "own: that is one page; the pressure alone may come from another process"),
            Threshold(SURE_DISK_PSI_PCT, "watch: confidence is low when PSI, where it is known, is below {:.0f} %",
                      _OWN),
        ),
    ),
    Cause(
        name=NETWORK, title="fetching over the network", colour="sky", named_by=(WATCH,),
        explanation="Loader workers wait for data from the network.",
        advice="Several requests at once per worker, more workers, or a local copy of the data.",
        thresholds=(
            Threshold(NETWORK_BYTES_PER_S / 1e3, "at least {:.0f} kB/s arrive; less is a machine's other traffic",
                      _OWN),
        ),
    ),
    Cause(
        name=NO_WORKERS, title="loading without workers", colour="vermilion", named_by=(SWEEP, WATCH),
        explanation="The training process loads and decodes every batch itself, and the accelerator waits meanwhile.",
        advice="Use loader workers: num_workers of at least 1.",
        thresholds=(
            Threshold(INLINE_READ_BYTES_PER_S / 1e6, "watch, without stacks: the main thread reads at least {:.0f} "
                      "MB/s from files", _OWN),
        ),
    ),
    Cause(
        name=WORKER_START, title="starting loader workers", colour="sand", named_by=(SWEEP, WATCH),
        explanation="Loader workers are started again, usually in every epoch, and deliver nothing until they are up.",
        advice="persistent_workers=True keeps them from one epoch to the next.",
        thresholds=(
            Threshold(YOUNG_WORKER_S, "a worker younger than {:.0f} s has not delivered yet",
                      "own: a worker with torch, numpy and a decoder takes about that long to start"),
        ),
    ),
    Cause(
        name=MAIN_PYTHON, title="Python in the main process", colour="purple", named_by=(WATCH,),
        explanation="The training loop itself runs Python between the steps, and the accelerator has nothing to run.",
        advice="Move that work into loader workers, compile it, or do it less often.",
    ),
    Cause(
        name=H2D_COPY, title="copying to the device", colour="brown", named_by=(SWEEP, WATCH),
        explanation="Batches are copied to the device between its steps, and it computes nothing meanwhile.",
        advice="pin_memory=True with .to(device, non_blocking=True); transfer uint8 and normalise on the device.",
    ),
    Cause(
        name=SMALL_BATCH, title="steps too small to fill the accelerator", colour="dark", named_by=(WATCH,),
        explanation="The accelerator runs, but each step is too small to fill it, or launching it takes too long.",
        advice="A larger batch; CUDA graphs or torch.compile where launches take the time.",
        thresholds=(
            Threshold(UNDERFILLED, "busy, but with less than {:.0%} of its multiprocessors at work",
                      "NVIDIA DCGM: SM activity below 0.5 is likely ineffective use"),
        ),
    ),
    Cause(
        name=COMMUNICATION, title="communication between ranks", colour="teal", named_by=(WATCH,),
        explanation="This rank waits in a collective operation for the other ranks.",
        advice="Look at the slowest rank first; then larger batches, gradient accumulation or overlap.",
    ),
    Cause(
        name=CHECKPOINT, title="checkpoint or evaluation", colour="green", named_by=(WATCH,),
        explanation="The main thread saves a checkpoint or evaluates, and training pauses.",
        advice="Save asynchronously, or less often.",
    ),
    Cause(
        name=THROTTLED, title="heat or a power brake holding the clocks down", colour="red", named_by=(WATCH,),
        advice="Cool it better, or look at its power supply: nvidia-smi -q -d TEMPERATURE,PERFORMANCE.",
        explanation="The accelerator is busy, but heat, or its hardware (a power brake), keeps its clocks down. A GPU "
                    "that its power limit alone keeps below its highest clock is healthy, with a remark.",
        thresholds=(
            Threshold(THROTTLED_FRAC, "its clocks are held down at least {:.0%} of the time: NVML's thermal violation "
                      "time, or its flags of a hardware slowdown", _OWN),
        ),
    ),
    Cause(
        name=SHARED, title="another process on the accelerator", colour="red", named_by=(WATCH,),
        explanation="The main thread waits for its steps, and the GPU works for another process meanwhile.",
        advice="End the other process, or give this job a GPU of its own.",
        thresholds=(
            Threshold(SHARED_FRAC, "other processes compute on the GPU at least {:.0%} of the time "
                      "(nvmlDeviceGetProcessUtilization)", _OWN),
        ),
    ),
    Cause(
        name=DATA_WAIT, title="waiting for data", colour="orange", named_by=(STALLS,), advice=None,
        explanation="The loop was waiting for its batch; why the batch came late was not measured.",
    ),
    Cause(
        name=NOT_INPUT, title="not the input pipeline", colour="grey", named_by=(STALLS,), advice=None,
        explanation="The accelerator was idle while the loop was not waiting for a batch.",
    ),
    Cause(
        name=UNDETERMINED, title="undetermined", colour="grey", named_by=(SWEEP, WATCH), advice=None,
        explanation="What was measured does not determine the cause; the missing signals are listed.",
        thresholds=(
            Threshold(MIN_READINGS, "watch: fewer than {:.0f} readings", "own: a process that read from a saturated "
                      "disk was in state D in only 48 of 100 readings"),
            Threshold(MIN_HEADLINE, "watch: no known cause has {:.0%} of the lost time",
                      "own: two causes that have 45 % each are to be named"),
            Threshold(MAX_UNDETERMINED, "watch: more than {:.0%} of the lost time is of unknown cause", _OWN),
        ),
    ),
    Cause(
        name=NOT_STARTED, title="no training seen yet", colour="grey", named_by=(WATCH,), advice=None,
        explanation="The job is still setting up, or is over: there was nothing that could be lost.",
    ),
)  # fmt: skip

CAUSES: dict[str, Cause] = {cause.name: cause for cause in _ROWS}


def canonical_cause(name: str) -> str:
    """Today's name of a cause that may come from a stored run; a name that is unknown stays as it is."""
    return OLD_NAMES.get(name, name)


def title_of(name: str) -> str:
    """The title of a cause; for an unknown one, which a newer version may have stored, its name without underscores."""
    cause = CAUSES.get(canonical_cause(name))
    return name.replace("_", " ") if cause is None else cause.title
