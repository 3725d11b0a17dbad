"""What would bring the target: the smallest change of each kind. Pure, but for the images that a change makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pipetune.answering.answer import SYSTEM_BYTES, answer, workers_text
from pipetune.answering.base import Base
from pipetune.answering.questions import disk_text
from pipetune.datasets.index import ImageSet
from pipetune.predicting.model import CORES, WORKERS
from pipetune.records.explanation import STORAGE
from pipetune.records.prediction import Answer, Disk, Prediction, Question, Reach
from pipetune.units import format_bytes

#: Shorter edges that data sets are stored with, the largest first.
_EDGES = (512, 480, 448, 384, 352, 320, 288, 256, 224, 192, 160)
_MOST_CORES = 512
_ALL = 0.99
_MOST_DISK_BYTES = 100e9


def reach_of(base: Base, now: Prediction) -> tuple[Reach, ...]:
    """The smallest change of each kind that brings the target, those that cost nothing first; ``()``: it is there."""
    wanted = base.target * now.demand_samples_per_s
    if base.measured_samples_per_s >= wanted:
        return ()
    found: list[Reach] = []
    if now.bound_by in (CORES, WORKERS):
        found += _more_workers(base)
        found += _fewer_ranks(base)
        found += _smaller_images(base)
        found += _more_cores(base)
    if now.bound_by == STORAGE:
        found += _more_workers(base)
        found += _more_memory(base)
        found += _faster_disk(base, wanted)
    return tuple(found)


def _first(questions: Iterable[Question], base: Base, text: Callable[[Question, Answer], str]) -> list[Reach]:
    """The first question whose answer reaches the target."""
    for question in questions:
        found = answer(question, base)
        prediction = found.prediction
        if prediction is None:
            return []  # it cannot be known of the others either
        # A smooth minimum comes as close to the accelerator's own rate as one likes, but never to it.
        if prediction.samples_per_s >= min(base.target, _ALL) * prediction.demand_samples_per_s:
            return [Reach(change=text(question, found), prediction=prediction)]
    return []


def _more_workers(base: Base) -> list[Reach]:
    most, now = math.floor(base.cores / base.ranks), base.candidate.num_workers
    return _first(
        (Question(workers=count) for count in range(now + 1, most + 1)), base,
        lambda question, _: f"{workers_text(question.workers or 0)} in place of {now or 'none'}",
    )  # fmt: skip


def _more_cores(base: Base) -> list[Reach]:
    """With no more workers than cores: those that there are may have been too few."""
    now = base.candidate.num_workers

    def question(count: int) -> Question:
        return Question(cores=float(count), workers=max(now, count // base.ranks) if now else None)

    def text(asked: Question, _: Answer) -> str:
        each = "" if base.ranks == 1 else " in each rank"
        return f"{asked.cores:g} cores, with {workers_text(asked.workers or 0)}{each}"

    return _first((question(count) for count in _counts(math.floor(base.cores) + 1)), base, text)


def _counts(first: int) -> Iterable[int]:
    """Every number of cores up to 32, then every eighth."""
    return (count for count in range(first, _MOST_CORES + 1) if count <= 32 or count % 8 == 0)


def _fewer_ranks(base: Base) -> list[Reach]:
    return _first(
        (Question(ranks=count) for count in range(base.ranks - 1, 0, -1)), base,
        lambda question, _: f"{question.ranks} rank{'s' * (question.ranks != 1)} on this host in place of {base.ranks}",
    )  # fmt: skip


def _smaller_images(base: Base) -> list[Reach]:
    if base.images is None or not base.stages:
        return []
    least, now = base.workload.image_size, _median_edge(base.images)
    return _first(
        (Question(shorter_edge=edge) for edge in _EDGES if least <= edge < now), base,
        lambda question, _: f"images stored with a shorter edge of {question.shorter_edge} px in place of {now}",
    )  # fmt: skip


def _more_memory(base: Base) -> list[Reach]:
    if base.mean_bytes is None:
        return []
    files = base.mean_bytes * base.images_in_all
    needed = math.ceil((files + (base.pss_bytes or 0) + SYSTEM_BYTES) / 2**30) * 2**30
    return _first(
        (Question(memory_bytes=needed),), base,
        lambda question, _: f"{format_bytes(needed)} of memory, which hold all files from the second epoch on",
    )  # fmt: skip


def _faster_disk(base: Base, wanted: float) -> list[Reach]:
    size = base.mean_bytes
    if size is None:
        return []
    rates = [wanted * size * 1.1**step for step in range(20)]
    return _first(
        (Question(disk=Disk(bytes_per_s=rate)) for rate in rates if rate < _MOST_DISK_BYTES), base,
        lambda question, _: f"storage that delivers {disk_text(question.disk or Disk())}",
    )  # fmt: skip


def _median_edge(images: ImageSet) -> int:
    width, height = images.median_size
    return min(width, height)
