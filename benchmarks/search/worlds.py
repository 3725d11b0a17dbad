"""Machines on paper: what each candidate delivers there, what it costs, and how measurements of it scatter.

``search_regret.py`` plays searches on them.

The model is a closed network of two stations, the loader and the accelerator, with as many batches in between as
prefetching allows (operational analysis: Denning and Buzen, "The Operational Analysis of Queueing Network Models", ACM
Computing Surveys 10, 1978). Its parts:

- a worker needs ``decode + collate`` CPU seconds per sample, and a process some more to hand batches over, so that one
  may be slower than none; ``n`` busy workers slow each other down by a share of memory bandwidth, and beyond the
  physical cores two share one;
- more workers than cores lose to context switches, which is the contention knee;
- what only one thread can do bounds the rate: for worker processes taking batches over, for threads the part that holds
  the GIL, without workers everything, the training step included;
- no station is faster than its own bound, and near the balance of both the rate is below either, the less so the more
  batches are in store: ``(sum of bound^-p)^(-1/p)`` with ``p`` growing with the prefetch depth, a soft minimum that is
  right at both ends and within a few per cent of simulated bounded queues between them;
- in the middle of the search the machine may become slower or faster, or other processes may take cores away, which
  costs time but no CPU time.

Ranges of the parameters, and of the noise in rates, CPU time and the machine's speed, are those of the grids that were
really measured (``results/search_grids-*.json``), widened.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from pipetune.candidates.settings import SETTINGS, ChosenValues
from pipetune.candidates.space import Space
from pipetune.machine.host import default_worker_counts
from pipetune.records.sweep import Candidate
from pipetune.registry import LOADERS

#: CPU time per sample relative to Pillow's: lowest and highest.
DECODE = {
    "pillow": (1.0, 1.0), "pillow-simd": (0.65, 0.85), "opencv": (0.7, 0.95), "opencv-reduced": (0.6, 0.95),
    "simplejpeg": (0.6, 0.9), "simplejpeg-reduced": (0.55, 0.9), "jpeg-roi": (0.4, 0.7), "jpeg-roi-fast": (0.35, 0.7),
    "torchvision": (0.8, 1.1), "torchcodec": (0.8, 1.15), "dali": (0.55, 1.0),
}  # fmt: skip
CORES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
BATCH = 64
#: Seconds that a measurement takes in addition to its timed phase: start of workers, page cache, reading the machine's
#: speed; warm-up; and in a new process the imports.
START_S, WARM_UP_S, IMPORT_S = 1.5, 1.5, 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine, data set and accelerator."""

    cores: int
    physical: int
    second_thread: float
    """Share of a core that its second hardware thread adds."""
    bandwidth: float
    """Share by which all cores busy at once slow each other down."""
    oversubscribed: float
    """Share lost per core's worth of workers beyond the cores."""
    ceiling: float
    """The accelerator's rate (samples/s)."""
    step_cores: float
    """Cores that the training process itself uses at that rate."""
    decode_s: dict[str, float]
    """CPU seconds per sample and backend."""
    collate_s: float
    """CPU seconds per sample for a fresh float32 batch."""
    ship: float
    """By which share a process needs more than that, because it hands the batch over."""
    hand_over_s: float
    """Seconds of the main thread per sample that a process hands over as float32."""
    lock_s: float
    """Seconds per sample for which a thread holds the GIL."""
    worker_bytes: float
    sharpness: float
    """``p`` per batch in store."""
    noise: float
    """Relative standard deviation between repetitions."""
    cpu_noise: float
    """The same of the CPU time per sample, where the accelerator sets the pace."""
    within: float
    """Relative standard deviation of one second's rate within a run."""
    slow_moments: float
    """Probability that a measurement falls into a slow moment."""
    drift: tuple[float, float]
    """From this share of the grid's time on the machine runs at this share of its speed."""
    drift_is_clock: bool
    """Its cores are slower; otherwise other processes have taken some."""
    broken: frozenset[str]
    """Backends that fail."""


def draw_machine(seed: int) -> tuple[Machine, Space]:
    """One of many machines, and the candidates there."""
    draw = random.Random(f"machine {seed}")
    cores = draw.choice(CORES)
    pillow_s = _log_uniform(draw, 0.002, 0.012)
    decode = {name: pillow_s * draw.uniform(*share) for name, share in DECODE.items()}
    smt = draw.random() < 0.7
    # So that the target is far below, about and above what the machine can decode, in equal parts.
    best = min(decode.values())
    capable = (cores * 0.65 if smt else cores) / best
    backends = tuple(name for name in DECODE if name == "pillow" or draw.random() < 0.6)
    settings: ChosenValues = ()
    if draw.random() < 0.5:
        settings = tuple((name, SETTINGS[name].values) for name in ("loader", "transfer", "reuse_buffers"))
    machine = Machine(
        cores=cores, physical=cores // 2 if smt else cores, second_thread=draw.uniform(0.15, 0.45),
        bandwidth=draw.uniform(0, 0.5), oversubscribed=draw.uniform(0.02, 0.5),
        ceiling=capable * _log_uniform(draw, 0.08, 2.0), step_cores=draw.uniform(0.1, 1.2), decode_s=decode,
        collate_s=_log_uniform(draw, 0.1e-3, 1e-3), ship=draw.uniform(0, 0.4), hand_over_s=draw.uniform(10e-6, 80e-6),
        lock_s=draw.uniform(15e-6, 120e-6),
        worker_bytes=draw.uniform(80e6, 350e6), sharpness=draw.uniform(3, 8), noise=_log_uniform(draw, 0.005, 0.09),
        cpu_noise=_log_uniform(draw, 0.01, 0.08), within=_log_uniform(draw, 0.01, 0.08),
        slow_moments=draw.choice((0.0, 0.0, 0.03)),
        drift=(draw.uniform(0.01, 0.1), draw.uniform(0.5, 1.3)) if draw.random() < 0.2 else (math.inf, 1.0),
        drift_is_clock=draw.random() < 0.5,
        broken=frozenset(name for name in backends if name != "pillow" and draw.random() < 0.04),
    )  # fmt: skip
    workers = default_worker_counts(cores)
    if draw.random() < 0.5:
        workers = (*workers, 2 * cores)  # past the knee
    space = Space(
        backends=backends, workers=workers, prefetch=(2, 4), batch_size=BATCH, pin_memory=False,
        settings=settings, usable_cores=float(cores),
    )  # fmt: skip
    return machine, space


def _log_uniform(draw: random.Random, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))


def true_rate(machine: Machine, candidate: Candidate, speed: float = 1.0) -> tuple[float, float]:
    """Samples/s and cores in use, without noise, while the machine runs at this share of its speed."""
    inside = LOADERS[candidate.loader].native_workers
    thread = LOADERS[candidate.loader].worker_kind == "thread"
    small = 0.25 if candidate.transfer == "uint8" else 1.0
    in_place = (thread and candidate.num_workers > 0) or candidate.reuse_buffers
    collate_s = machine.collate_s * small * (0.25 if in_place else 1.0)
    if candidate.num_workers and not thread:
        collate_s *= 1 + machine.ship
    work = (machine.decode_s[candidate.backend] + collate_s) / speed
    step_s = 1 / machine.ceiling
    on_core = 1.0 if machine.drift_is_clock else speed
    if candidate.num_workers == 0:
        rate = 1 / (work + step_s)
        return rate, on_core * rate * work + machine.step_cores * rate / machine.ceiling
    free = max(0.5, machine.cores - machine.step_cores)
    workers = float(candidate.num_workers)
    busy = min(workers, free)
    power = _power(machine, busy) / (1 + machine.bandwidth * busy / machine.cores)
    if workers > free:
        power /= 1 + machine.oversubscribed * (workers / free - 1)
    bounds = [power / work, machine.ceiling]
    if not inside:
        serial = machine.lock_s if thread else machine.hand_over_s * small * (0.5 if candidate.reuse_buffers else 1)
        bounds.append(speed / serial)
    p = 4 + machine.sharpness * math.log2(1 + candidate.prefetch_depth)
    rate = sum(bound**-p for bound in bounds) ** (-1 / p)
    used = busy * min(1.0, rate / (power / work))
    return rate, on_core * used + machine.step_cores * rate / machine.ceiling


def _power(machine: Machine, busy: float) -> float:
    return min(busy, machine.physical) + machine.second_thread * max(0.0, busy - machine.physical)


def memory_of(machine: Machine, candidate: Candidate) -> float:
    """Bytes."""
    batch = BATCH * 3 * 224**2 * (1 if candidate.transfer == "uint8" else 4)
    thread = LOADERS[candidate.loader].worker_kind == "thread"
    batches = candidate.num_workers * candidate.prefetch_depth + 2
    return 600e6 + (0 if thread else candidate.num_workers * machine.worker_bytes) + batches * batch
