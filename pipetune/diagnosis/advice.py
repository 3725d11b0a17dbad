"""The setting to change, with a number in it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

from pipetune.diagnosis import causes
from pipetune.diagnosis.attribution import Loss
from pipetune.diagnosis.evidence import Context

#: More workers than this for data that is waited for would hide a latency that had better be removed.
_MOST_WORKERS = 64


def advice_for(cause: str, loss: Loss, context: Context) -> str | None:
    """What to do about the headline; ``None``: nothing about the input pipeline."""
    make = _ADVICE.get(cause)
    return None if make is None else make(loss, context)


def workers_needed(loss: Loss, context: Context) -> float:
    """Loader workers' worth of time that full speed takes: what they do now, at the rate without the loss."""
    return context.worker_count * context.worker_busy_frac / max(0.02, 1 - loss.idle_frac)


def _decode(loss: Loss, c: Context) -> str:
    needed = workers_needed(loss, c)
    cores_needed = c.worker_count * c.worker_cpu_frac / max(0.02, 1 - loss.idle_frac) + c.main_cpu_frac
    wanted = max(c.worker_count + 1, _up(needed))
    busy = f"workers are {100 * c.worker_busy_frac:.0f} % busy"
    room = _idle_cores(c)
    if c.worker_kind == "thread" and c.worker_count * c.worker_cpu_frac < 1.2 and c.worker_count > 1:
        return (
            f"{c.worker_count} loader threads share {c.worker_count * c.worker_cpu_frac:.1f} cores, as they do when "
            f"they hold Python's lock: use processes, or a decoder that releases it; demand is "
            f"{needed:.1f} workers' worth"
        )
    if cores_needed <= c.cores:
        return (
            f"num_workers {c.worker_count} -> {wanted}: {busy}, {room:.1f} of {c.cores:g} cores idle, demand is "
            f"{needed:.1f} workers' worth"
        )
    most = max(c.worker_count, math.floor(c.cores))
    more = f"num_workers {c.worker_count} -> {most}, and " if most > c.worker_count else ""
    return (
        f"{more}decode for less: full speed takes {cores_needed:.1f} cores with this decoder, {c.cores:g} are "
        "usable; pipetune sweep measures the other decoders, --device cuda those that decode on the GPU"
    )


def _starved(loss: Loss, c: Context) -> str:
    wanted = c.job_cores / max(0.02, 1 - loss.idle_frac)
    if c.throttled_frac is not None and c.throttled_frac >= causes.QUOTA_FRAC:
        return (
            f"raise the CPU quota {c.quota_cores:g} -> {_up(wanted)} cores: it stops the job "
            f"{100 * c.throttled_frac:.0f} % of the time; or decode for less (pipetune sweep)"
        )
    others = _other_cores(c)
    if others is not None and others >= 0.25 * c.cores:
        return (
            f"free the CPU: other processes use {others:.1f} of {c.cores:g} cores; this job would use up to "
            f"{min(wanted, 999):.1f} at full speed"
        )
    most = max(1, math.floor(c.cores))
    if c.worker_count > most:
        return (
            f"num_workers {c.worker_count} -> {most}: {c.worker_count} workers share {c.cores:g} cores and wait for "
            f"one {100 * c.worker_delay_frac:.0f} % of their time; full speed takes {wanted:.1f} cores, so decode for "
            "less, too"
        )
    return (
        f"the job's own threads fill all {c.cores:g} cores, full speed takes {wanted:.1f}: decode for less (pipetune "
        "sweep), or limit the threads of other libraries (OMP_NUM_THREADS=1, cv2.setNumThreads(0))"
    )


def _disk(loss: Loss, c: Context) -> str:
    needed = min(_MOST_WORKERS, _up(workers_needed(loss, c)))
    rate = "" if c.read_per_s is None else f" at {c.read_per_s / 1e6:.1f} MB/s"
    wanted = (
        ""
        if c.read_per_s is None
        else f"; full speed reads {c.read_per_s / max(0.02, 1 - loss.idle_frac) / 1e6:.1f} MB/s"
    )
    more = f"num_workers {c.worker_count} -> {needed} if the disk can take more requests at once, else " if (
        needed > c.worker_count
    ) else ""  # fmt: skip
    return f"{more}keep the images in memory or on a faster disk: workers wait for storage{rate}{wanted}"


def _network(loss: Loss, c: Context) -> str:
    needed = min(_MOST_WORKERS, max(c.worker_count + 1, _up(workers_needed(loss, c))))
    rate = "" if c.received_per_s is None else f", {c.received_per_s / 1e6:.1f} MB/s arrive"
    return (
        f"num_workers {c.worker_count} -> {needed}, several requests at once in each, or a local copy: workers wait "
        f"for the network{rate}"
    )


def _no_workers(loss: Loss, c: Context) -> str:
    # One process does both: of a second, the loading takes what is lost, and the rest is left for the steps.
    demand = loss.idle_frac / max(0.02, 1 - loss.idle_frac)
    wanted = max(1, _up(demand))
    room = min(wanted, max(1, math.floor(c.cores)))
    return (
        f"num_workers 0 -> {room}: the training process loads each batch itself, {100 * loss.idle_frac:.0f} % of the "
        f"time; full speed takes {demand:.1f} workers' worth, {_idle_cores(c):.1f} of {c.cores:g} cores are idle"
    )


def _start(loss: Loss, c: Context) -> str:
    return "persistent_workers=True: the loader workers are started anew for every epoch"


def _python(loss: Loss, c: Context) -> str:
    where = "" if c.python_where is None else f", mostly in {c.python_where}"
    return (
        f"move work out of the training loop: its main thread is on a core {100 * c.main_cpu_frac:.0f} % of the "
        f"time{where}; into loader workers, torch.compile, or less often (logging, metrics)"
    )


def _copy(loss: Loss, c: Context) -> str:
    return "pin_memory=True and .to(device, non_blocking=True); transfer uint8 and normalise on the device (a quarter)"


def _small(loss: Loss, c: Context) -> str:
    return "batch_size x 2 until memory or the rate per sample stops it; CUDA graphs or torch.compile for the launches"


def _communication(loss: Loss, c: Context) -> str:
    return "see the slowest rank first; then larger batches, gradient accumulation, or overlap (DDP buckets, no_sync)"


def _checkpoint(loss: Loss, c: Context) -> str:
    return "save from another thread or process (torch.distributed.checkpoint.async_save), or less often"


def _up(number: float) -> int:
    """To whole workers or cores; a twentieth of one is the inexactness of what it was reckoned from."""
    return math.ceil(number - 0.05)


def _idle_cores(c: Context) -> float:
    idle = (c.cpu_idle_pct or 0.0) + (c.cpu_iowait_pct or 0.0)
    return min(c.cores * idle / 100, max(0.0, c.cores - c.job_cores))


def _other_cores(c: Context) -> float | None:
    return None if c.cpu_busy_pct is None else max(0.0, c.cpu_busy_pct / 100 * c.cores - c.job_cores)


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
}
