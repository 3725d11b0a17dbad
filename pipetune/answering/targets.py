"""From a question to what is measured: the loader, the accelerator, the images and the limits around them."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.accelerator.named import emulated_spec
from pipetune.answering.answer import SYSTEM_BYTES, answer, apply
from pipetune.answering.base import Base
from pipetune.answering.disks import disk_rate, reads_of
from pipetune.answering.nearest import NotHereError
from pipetune.answering.questions import question_text
from pipetune.answering.shrunken import shrink_all
from pipetune.augmentation.recipes import DEVICE, device_augments
from pipetune.datasets.index import ImageSet, write_index
from pipetune.explaining.subset import draw_subset
from pipetune.machine.limits import limited_memory, limited_storage
from pipetune.records.prediction import Question
from pipetune.records.sweep import Candidate, Workload

#: So many images are made smaller, at most.
_MOST_SHRUNKEN = 1024
_ANY_BYTES = 1 << 62
#: Files can be read from storage once, so little of them may go into the warm-up (s), and not all into the rate.
_STORAGE_WARMUP_S, _OF_EPOCH, _LEAST_S = 0.3, 0.6, 0.5
#: Of a limited memory a whole later epoch is measured; a longer one is not (s).
_LONGEST_EPOCH_S = 120.0
_EPOCHS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is to be measured."""

    question: Question
    text: str
    """What it is called among what was measured."""
    candidate: Candidate
    workload: Workload
    cores: int | None
    """Cores to be used; ``None``: all."""
    images: ImageSet | None


class Maker:
    """Makes targets; what it makes on the disk is gone when it is closed. A context manager."""

    def __init__(self, base: Base, folder: Path, seconds: float) -> None:
        self._base, self._folder, self._seconds = base, folder.resolve(), seconds
        self._stack = contextlib.ExitStack()
        self._made: dict[Question, Target] = {}

    def __enter__(self) -> Maker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def target(self, question: Question, *, cores_here: float, text: str | None = None) -> Target:
        """How a question is measured; the same question is the same target.

        Raises:
            NotHereError, CannotLimitError: it cannot be.
            Refused: too little is known.
            PipetuneError: an image cannot be read or written.
        """
        if question in self._made:
            return self._made[question]
        base = self._base
        changed = apply(question, base)
        if question.transforms == DEVICE and not device_augments(base.workload.accelerator):
            raise NotHereError(f"{base.workload.accelerator.name} augments no images")
        workers = changed.setting.workers
        depth = (base.candidate.prefetch_depth or 2) if workers else 0
        images = self._images(question)
        if images is not None and len(images.images) < changed.setting.ranks * base.candidate.batch_size:
            raise NotHereError(f"{len(images.images)} images are fewer than a batch for each rank")
        cores = None if math.isclose(changed.setting.cores, cores_here) else max(1, round(changed.setting.cores))
        target = Target(
            question=question, text=text or self._unused(question_text(question)), cores=cores, images=images,
            candidate=replace(
                base.candidate, num_workers=workers, prefetch_depth=depth,
                transforms_on=question.transforms or base.candidate.transforms_on,
            ),
            workload=self._workload(question, changed.costs.demand_per_s, changed.setting.ranks, images),
        )  # fmt: skip
        target = _with_length(target, self._base)
        with limits_of_target(target):  # whether they can be set
            pass
        self._made[question] = target
        return target

    def _unused(self, text: str) -> str:
        """A name that no other question has: rounded values may be written alike."""
        used = {target.text for target in self._made.values()}
        return text if text not in used else f"{text} ({len(used) + 1})"

    def _workload(self, question: Question, demand_per_s: float, ranks: int, images: ImageSet | None) -> Workload:
        base, workload = self._base, self._base.workload
        spec = workload.accelerator
        if question.device is not None or (question.image_size is not None and spec.kind == "emulated"):
            # The rate is one with the copies of batches in it, and what is done to them on the device.
            spec = replace(
                spec if spec.kind == "emulated" else emulated_spec("1"), rate_samples_per_s=demand_per_s,
                copy_bytes_per_s=None, augment_samples_per_s=None,
            )  # fmt: skip
        stored = question.disk is not None or (base.cold and question.memory_bytes is None)
        path = self._folder / "index.json"
        if images is not None and question.shorter_edge is not None:
            path = self._folder / f"index-{len(self._made) + 1}.json"
            write_index(str(path), images)
        return replace(
            workload, accelerator=spec, ranks=ranks, seconds=self._seconds, cache="cold" if stored else "warm",
            warmup_limit_s=max(4.0, 2 * self._seconds), image_size=question.image_size or workload.image_size,
            index_path=str(path) if images is not None else workload.index_path,
        )  # fmt: skip

    def _images(self, question: Question) -> ImageSet | None:
        images = self._base.images
        if images is None or question.shorter_edge is None:
            return images
        # In the run folder, because a temporary one may be in memory.
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder, prefix="smaller-"))
        chosen = draw_subset(images, 0, most_images=_MOST_SHRUNKEN, most_bytes=_ANY_BYTES).images
        return replace(images, root=folder, images=shrink_all(chosen, question.shorter_edge, Path(folder)))


@contextlib.contextmanager
def limits_of_target(target: Target) -> Iterator[None]:
    """The control groups around a target.

    Raises:
        CannotLimitError: they cannot be made.
    """
    question = target.question
    with contextlib.ExitStack() as stack:
        if question.disk is not None and target.images is not None:
            folder = Path(target.images.files[0]).parent
            stack.enter_context(limited_storage(folder, question.disk.bytes_per_s, question.disk.requests_per_s))
        if question.memory_bytes is not None:
            # What a whole machine's system takes is no part of the group.
            stack.enter_context(limited_memory(question.memory_bytes - SYSTEM_BYTES))
        yield


def _with_length(target: Target, base: Base) -> Target:
    """With a timed phase in which files are read from storage, where they are to be.

    Raises:
        NotHereError: they are too few, or too many.
    """
    question, images = target.question, target.images
    if question.disk is None and question.memory_bytes is None and not base.cold:
        return target
    if images is None:
        raise NotHereError("which files your own loader reads is not known, so they cannot be dropped from memory")
    expected = answer(question, base).prediction
    rate = base.measured_samples_per_s if expected is None else expected.samples_per_s
    epoch_s, workload = len(images.images) / rate, target.workload
    if question.memory_bytes is not None:
        if len(images.images) < base.images_in_all or question.shorter_edge is not None:
            raise NotHereError("all images of the data set would have to be read, and the run has some of them only")
        if epoch_s > _LONGEST_EPOCH_S:
            raise NotHereError(f"an epoch would take {epoch_s:.0f} s, and two have to be measured")
        return replace(target, workload=replace(workload, seconds=max(workload.seconds, _EPOCHS * epoch_s)))
    size = base.mean_bytes or 1.0
    if question.disk is not None and disk_rate(question.disk, size, reads_of(base, size)) > (
        base.storage_per_s or math.inf
    ):
        raise NotHereError(f"the storage of the run delivered {base.storage_per_s:,.0f} files/s only")
    if _OF_EPOCH * epoch_s < _LEAST_S:
        raise NotHereError(f"all images are read within {epoch_s:.1f} s, too short to measure: use a larger data set")
    seconds = min(workload.seconds, _OF_EPOCH * epoch_s)
    return replace(target, workload=replace(workload, seconds=seconds, warmup_limit_s=_STORAGE_WARMUP_S))
