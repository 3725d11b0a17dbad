"""What to change about a cause, with the numbers of the window in it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

from pipetune.diagnosis import causes
from pipetune.diagnosis.attribution import Loss
from pipetune.diagnosis.context import Context
from pipetune.units import whole_percent

#: No more workers than this are advised: beyond it, it is better to shorten the wait than to hide it.
_MAX_WORKERS = 64
#: A job is taken to run at full speed for at least this share of the time: it bounds the demand that is extrapolated
#: for a job that nearly always waits.
_MIN_RUNNING = 0.02
#: Above this many cores or workers, an extrapolated demand is shown as "more than".
_MAX_DEMAND = 100
#: Threads that together use less than this much are taken to wait for the GIL.
_GIL_CORES = 1.2
#: Other processes are named when they use at least this share of the usable cores.
_OTHERS_SHARE = 0.25
#: Workers that wait for a core for this share of their time have too few of them.
_DELAYED = 0.1
_CHEAPER = "a decoder that takes less CPU time (pipetune sweep compares them), or smaller images (pipetune pack)"


def advice_for(cause: str, loss: Loss, context: Context) -> str | None:
    """What to do about the headline; ``None``: nothing about the input pipeline."""
    make = _ADVICE.get(cause)
    return None if make is None else make(loss, context)


def workers_needed(loss: Loss, context: Context) -> float:
    """Loader workers that full speed would keep busy: those busy now, times the speed-up without the loss."""
    return context.worker_count * context.worker_busy_frac * _speed_up(loss)


def _decode(loss: Loss, c: Context) -> str:
    # While workers wait for a core, more of them would only wait longer.
    delayed = c.worker_delay_frac if c.worker_delay_frac >= _DELAYED else 0.0
    needed = max(0.0, workers_needed(loss, c) - c.worker_count * delayed * _speed_up(loss))
    cores_needed = c.worker_count * c.worker_cpu_frac * _speed_up(loss) + c.main_cpu_frac
    work = f"full speed needs the work of {_amount(needed)} workers"
    cores = c.worker_count * c.worker_cpu_frac
    if c.worker_kind == "thread" and cores < _GIL_CORES and c.worker_count > 1:
        return (
            f"use worker processes, or a decoder that releases the GIL: {c.worker_count} loader threads together use "
            f"only {cores:.1f} cores, as threads do that wait for the GIL; {work}"
        )
    wanted = min(_MAX_WORKERS, max(c.worker_count + 1, _up(needed)))
    if cores_needed <= c.cores_of_rank and c.worker_delay_frac >= _DELAYED and _idle_cores(c) < 1:
        return _starved(loss, c)
    if cores_needed <= c.cores_of_rank and wanted > c.worker_count:
        return (
            f"num_workers {c.worker_count} -> {wanted}{_in_each(c)}: the workers are "
            f"{whole_percent(c.worker_busy_frac)} busy, {work}, and {_idle_cores(c):.1f} of {c.cores:g} cores are idle"
        )
    limit = max(c.worker_count, math.floor(c.cores_of_rank))
    more = f"num_workers {c.worker_count} -> {limit}{_in_each(c)}, and " if limit > c.worker_count else ""
    return f"{more}{_CHEAPER}: with this one, full speed needs {_amount(cores_needed)} cores, and {_usable(c)}"


def _starved(loss: Loss, c: Context) -> str:
    wanted = (c.job_cores + c.other_ranks.cores) * _speed_up(loss)
    if c.throttled_frac is not None and c.throttled_frac >= causes.QUOTA_FRAC:
        stops = f"it stops the job {whole_percent(c.throttled_frac)} of the time"
        if c.quota_cores is not None and _up(wanted) <= c.quota_cores:
            return (
                f"fewer threads at once (OMP_NUM_THREADS=1, cv2.setNumThreads(0), fewer workers), or cores of its own "
                f"in place of a CPU quota: the job uses up its quota of {c.quota_cores:g} cores in bursts, and {stops} "
                f"though it takes {c.job_cores + c.other_ranks.cores:.1f} in the mean"
            )
        return f"raise the CPU quota from {c.quota_cores:g} to {_up(wanted)} cores: {stops}; or use {_CHEAPER}"
    others = _other_cores(c)
    if others is not None and others >= _OTHERS_SHARE * c.cores:
        return (
            f"free the CPU: other processes use {others:.1f} of {c.counted_cores:g} cores, and at full speed this job "
            f"would use up to {_amount(wanted)}"
        )
    limit = max(1, math.floor(c.cores_of_rank))
    if c.worker_count > limit:
        count = (1 + c.other_ranks.count) * c.worker_count
        return (
            f"num_workers {c.worker_count} -> {limit}{_in_each(c)}: {count} workers share {c.cores:g} cores and wait "
            f"for one {whole_percent(c.worker_delay_frac)} of their time; full speed needs {_amount(wanted)} cores, so "
            f"it also takes {_CHEAPER}"
        )
    return (
        f"{_CHEAPER}, or fewer threads in other libraries (OMP_NUM_THREADS=1, cv2.setNumThreads(0)): the job's own "
        f"threads fill all {c.cores:g} cores, and full speed needs {_amount(wanted)}"
    )


def _disk(loss: Loss, c: Context) -> str:
    needed = min(_MAX_WORKERS, _up(workers_needed(loss, c)))
    text = "keep the images in memory or on a faster disk, or "
    text += "pack them: smaller, in large files (pipetune pack)" if c.packed is None else \
        f"make them smaller (pipetune pack), which are in {c.packed} already"  # fmt: skip
    if needed > c.worker_count:
        text = f"num_workers {c.worker_count} -> {needed} if the disk can serve more requests at once; otherwise {text}"
    if c.read_per_s is None:
        return f"{text}: the workers wait for storage"
    return (
        f"{text}: the workers wait for storage, which delivers {c.read_per_s / 1e6:.1f} MB/s; full speed needs "
        f"{c.read_per_s * _speed_up(loss) / 1e6:.1f} MB/s"
    )


def _network(loss: Loss, c: Context) -> str:
    needed = min(_MAX_WORKERS, max(c.worker_count + 1, _up(workers_needed(loss, c))))
    rate = "" if c.received_per_s is None else f", which delivers {c.received_per_s / 1e6:.1f} MB/s"
    return (
        f"num_workers {c.worker_count} -> {needed}, several requests at once per worker, or a local copy, which "
        f"pipetune pack makes smaller{' and in large files' if c.packed is None else ''}: the workers "
        f"wait for the network{rate}"
    )


def _no_workers(loss: Loss, c: Context) -> str:
    # One process does both in turn: the lost share of the time is loading, the rest is steps.
    taken = loss.idle_frac * loss.shares.get(causes.NO_WORKERS, 1.0)
    demand = taken * _speed_up(loss)
    wanted = min(max(1, _up(demand)), max(1, math.floor(c.cores_of_rank)))
    return (
        f"num_workers 0 -> {wanted}{_in_each(c)}: the training process loads each batch itself, which takes "
        f"{whole_percent(taken)} of the time; full speed needs the work of {_amount(demand)} workers, and "
        f"{_idle_cores(c):.1f} of {c.cores:g} cores are idle"
    )


def _start(loss: Loss, c: Context) -> str:
    return "persistent_workers=True: without it, the loader workers are started again for every epoch"


def _python(loss: Loss, c: Context) -> str:
    where = "" if c.python_where is None else f", mostly in {c.python_where}"
    return (
        "move work out of the training loop, into loader workers or a compiled step, or do it less often (logging, "
        f"metrics): its main thread is on a core {whole_percent(c.main_cpu_frac)} of the time{where}"
    )


def _copy(loss: Loss, c: Context) -> str:
    return (
        "pin_memory=True and .to(device, non_blocking=True); batches of uint8, normalised on the device, are a quarter "
        "of the size"
    )


def _small(loss: Loss, c: Context) -> str:
    return (
        "double the batch size until memory is full or samples/s no longer grow; CUDA graphs or torch.compile where "
        "launching kernels takes the time"
    )


def _communication(loss: Loss, c: Context) -> str:
    return (
        "look at the slowest rank first; then larger batches, gradient accumulation, or overlap (DDP buckets, no_sync)"
    )


def _checkpoint(loss: Loss, c: Context) -> str:
    return (
        "save asynchronously (torch.distributed.checkpoint.async_save) or in another process; save and evaluate less "
        "often"
    )


def _throttled(loss: Loss, c: Context) -> str:
    clock = "" if c.gpu.clock_frac is None else f"; its clock is at {whole_percent(c.gpu.clock_frac)} of the highest"
    return f"cool the GPU better, or look at its power supply: nvidia-smi -q -d TEMPERATURE,PERFORMANCE{clock}"


def _shared(loss: Loss, c: Context) -> str:
    return f"end {c.gpu.others}, or give this job a GPU of its own: nvidia-smi lists the processes of each"


def _speed_up(loss: Loss) -> float:
    """How many times faster the job would run without the loss."""
    return 1 / max(_MIN_RUNNING, 1 - loss.idle_frac)


def _amount(number: float) -> str:
    """Cores or workers, to a tenth."""
    return f"more than {_MAX_DEMAND}" if number > _MAX_DEMAND else f"{number:.1f}"


def _up(number: float) -> int:
    """Rounded up to whole workers or cores; a twentieth of one is within the error of measurement."""
    return math.ceil(number - 0.05)


def _idle_cores(c: Context) -> float:
    idle = (c.cpu_idle_pct or 0.0) + (c.cpu_iowait_pct or 0.0)
    return min(c.counted_cores * idle / 100, max(0.0, c.cores - c.job_cores - c.other_ranks.cores))


def _other_cores(c: Context) -> float | None:
    if c.cpu_busy_pct is None:
        return None
    return max(0.0, c.cpu_busy_pct / 100 * c.counted_cores - c.job_cores - c.other_ranks.cores)


def _usable(c: Context) -> str:
    ranks = 1 + c.other_ranks.count
    if ranks == 1:
        return f"{c.cores:g} are usable"
    return f"{c.cores:g} are usable by {ranks} ranks, {c.cores_of_rank:.3g} by each"


def _in_each(c: Context) -> str:
    """What to say behind a number of workers where there are several ranks."""
    return f" in each of {1 + c.other_ranks.count} ranks" if c.other_ranks.count else ""


_ADVICE: dict[str, Callable[[Loss, Context], str]] = {
    causes.CPU_DECODE: _decode,
    causes.CPU_STARVED: _starved,
    causes.DISK: _disk,
    causes.NETWORK: _network,
    causes.NO_WORKERS: _no_workers,
    causes.WORKER_START: _start,
    causes.MAIN_PYTHON: _python,
    causes.H2D_COPY: _copy,
    causes.SMALL_BATCH: _small,
    causes.COMMUNICATION: _communication,
    causes.CHECKPOINT: _checkpoint,
    causes.THROTTLED: _throttled,
    causes.SHARED: _shared,
}
