"""The loaders and questions of ``whatif_error.py``, and what simpler rules answer to them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.answering.answer import apply, scaled_workers
from pipetune.answering.base import Base
from pipetune.predicting.model import limits_of
from pipetune.records.prediction import Disk, Prediction, Question


@dataclass(frozen=True, slots=True)
class Known:
    """A loader that is taken apart, and asked about."""

    key: str
    dataset: str
    image_size: int
    device: str
    """Far more than the loader delivers: otherwise the answers would be the accelerator's rate, and easy."""
    rates: tuple[int, ...]
    """Of accelerators that are asked about (samples/s)."""
    edges: tuple[int, ...]
    disks: tuple[float, ...] = ()
    """MB/s."""
    requests: tuple[float, ...] = ()
    """Reads per second."""


_CALTECH, _IMAGENET = "synthetic:caltech256?n=1500", "synthetic:imagenet?n=1500"
LOADERS = (
    Known("pillow-w1-p2-b32", _CALTECH, 224, "emulated:20000", (150, 250, 400), (160, 224), (8, 16)),
    Known("pillow-w2-p2-b32", _IMAGENET, 224, "emulated:20000", (200, 350, 600), (256, 352), (20,), (150,)),
    Known("opencv-w1-p2-b32-reuse-u8", _CALTECH, 160, "emulated:20000", (600, 900), (128, 192)),
    Known("opencv-w2-p2-b32", _IMAGENET, 160, "emulated:20000", (300, 500, 900), (256, 320), (30,)),
    Known("simplejpeg-w2-p2-b32-thread-u8", _IMAGENET, 224, "emulated:20000", (300, 600), (256, 352), (), (250,)),
    Known("jpeg-roi-w1-p2-b32-reuse-u8", _IMAGENET, 128, "emulated:20000", (700, 1200, 2500), (160, 256), (40,)),
    Known("torchvision-w2-p2-b32", _CALTECH, 128, "emulated:20000", (400, 700), (128, 160), (10,)),
)
QUICK = (0, 3)


def questions_about(known: Known, *, quick: bool) -> Iterator[Question]:
    """What is asked of a loader."""
    for count in (0, 1, 2, 3, 4):
        if f"-w{count}-" not in known.key and not (count == 0 and "thread" in known.key):
            yield Question(workers=count)
    yield Question(cores=1.0)
    yield Question(cores=1.0, workers=2)
    for rate in known.rates:
        yield Question(device=f"emulated:{rate}")
    for size in (96, 160, 288):
        if size != known.image_size:
            # Of an accelerator with a rate of its own: otherwise it would be emulated at the predicted one.
            yield Question(image_size=size, device=known.device)
    for edge in known.edges:
        yield Question(shorter_edge=edge)
    if quick:
        return
    for megabytes in known.disks:
        yield Question(disk=Disk(bytes_per_s=megabytes * 1e6))
    for reads in known.requests:
        yield Question(disk=Disk(requests_per_s=reads))
    for ranks in (2, 4):
        yield Question(ranks=ranks, device=f"emulated:{known.rates[0]}")
    yield Question(cores=1.0, shorter_edge=known.edges[0])
    yield Question(workers=2 if "-w1-" in known.key else 1, image_size=96, device=known.device)


def plain_minimum(question: Question, base: Base) -> float:
    """The smallest limit."""
    changed = apply(question, base)
    return min(limits_of(changed.costs, changed.setting).values())


def linear_cores(question: Question, base: Base) -> float | None:
    """Rate per core times cores, and the accelerator at most; ``None``: it is not about cores or workers."""
    if question.cores is None and question.workers is None and question.device is None:
        return None
    cores, workers = question.cores or base.cores, question.workers
    if workers is None:
        workers = base.candidate.num_workers
        if question.cores is not None and workers:
            workers = scaled_workers(workers, question.cores / base.cores)
    busy = min(cores, max(1, workers)) / min(base.cores, max(1, base.candidate.num_workers))
    demand = apply(question, base).costs.demand_per_s * base.ranks
    return min(demand, base.measured_samples_per_s * busy)


def bound_by(question: Question, prediction: Prediction, rate: float, cores_used: float | None, cores: float) -> str:
    """What set the pace, by what was measured: the accelerator where it was fed; storage where cores were idle and a
    disk was named; cores where they were busy; else the workers."""
    if rate >= 0.95 * prediction.demand_samples_per_s:
        return "accelerator"
    busy = math.nan if cores_used is None else cores_used / cores
    if question.disk is not None and busy < 0.85 and prediction.next_bound_by != "storage":
        return "storage"
    return "cores" if busy >= 0.85 else "workers"
