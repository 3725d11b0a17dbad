"""Whether an iterable data set divides its samples among workers, judged by what its processes have reported.

First sign: a data set that never asks how many workers there are cannot divide its samples among them. Second: two
workers whose first samples have the same labels, keys or indices yield the same samples. Third: an epoch has another
number of samples than with the script's own workers (:mod:`pipetune.hook.epoch_samples`). Pixels are not compared:
random augmentation changes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pipetune.hook import fastai
from pipetune.hook.epoch_samples import EpochSamples
from pipetune.hook.guards import is_iterable_set
from pipetune.hook.iteration_report import read_reports
from pipetune.usercode.batches import size_of

UNDIVIDED = (
    "the IterableDataset does not ask torch.utils.data.get_worker_info how many workers there are, so each of them "
    "would yield every sample"
)
SAME_SAMPLES = (
    "two workers yield the same samples: the IterableDataset does not divide its data among workers, so each sample "
    "would come as often as there are workers"
)
ONLY_NUMBERED = (
    "the IterableDataset asks which worker it is in, and not how many there are: it is written for no other number of "
    "workers than the script's own"
)


class RepeatedSamplesError(Exception):
    """Several workers yield the same samples, or leave some out."""


class Division:
    """Judges the data set of one loader, over all iterators that are made of it.

    Args:
        folder: with the reports; ``None``: nothing is reported, and nothing is known by them.
        dataset: of the loader.
        drops_rest: see :class:`pipetune.hook.epoch_samples.EpochSamples`.
    """

    def __init__(self, folder: str | None, dataset: Any, *, drops_rest: bool = False) -> None:
        self._folder, self._dataset = folder, id(dataset)
        self.epochs = EpochSamples(drops_rest=drops_rest)
        self._iterators: list[frozenset[int]] = []
        """Processes of the workers of each iterator since :meth:`begin`."""
        self._own_workers, self._is_own = 0, True

    def follow(self, loader: Any | None) -> None:
        """The loader was made anew, perhaps from another data set; ``None``: it was not."""
        if loader is not None:
            self._dataset = id(loader.dataset)

    def begin(self, request: Mapping[str, Any]) -> None:
        """Another measurement begins, with other workers.

        Args:
            request: the message ``measure``.
        """
        workers, self._own_workers = int(request["num_workers"]), int(request["own_workers"])
        # The data set may have been written for the script's own number, and ask which of them it is in alone.
        self._is_own = workers == self._own_workers
        self._iterators = []
        self.epochs.begin(workers, self._own_workers, request["own_epoch_samples"])

    def take(self, batch: Any, source: Any, number: int, *, is_first: bool) -> bool:
        """Count a batch that the loop gets; whether its workers are to be looked at now.

        Args:
            number: of the batch in this measurement, from 0.
            is_first: it is an iterator's first one.
        """
        self.epochs.take(size_of(batch), whole=source.whole)
        return is_first or number & (number - 1) == 0 or self.epochs.exceeds  # the first, second, third, fifth …

    def find_refusal(self, source: Any) -> str | None:
        """Why the present workers of a loader are refused; ``None``: they are not.

        As many workers as the script has are its own affair, though they yield each sample several times.

        Args:
            source: of the loader's batches (:class:`pipetune.hook.source.Source`).
        """
        return None if self._is_own else self.find_repeats(source)

    def find_repeats(self, source: Any) -> str | None:
        """As :meth:`find_fault` of the source's iterator; ``None`` also while kept batches are replayed."""
        return None if source.replaying else self.find_fault(source.inner)

    def describe(self, source: Any) -> dict[str, Any]:
        """The fields of a message ``result`` about the data set."""
        return {"repeats": self.find_repeats(source) is not None, "epoch_samples": self.epochs.samples}

    def find_fault(self, iterator: Any) -> str | None:
        """Why these workers, or those of an iterator before since :meth:`begin`, do not divide their samples.

        Args:
            iterator: torch's, at this moment; ``None``: there is none.

        Returns:
            ``None``: they divide them, or that is not known yet.
        """
        workers = worker_pids(iterator)
        if workers and workers not in self._iterators:
            self._iterators.append(workers)
        faults = (self._judge_workers(each) for each in self._iterators)
        return next((fault for fault in faults if fault is not None), None) or self.epochs.find_fault()

    def is_undivided(self, iterator: Any, loader: Any) -> bool:
        """Whether the script's own iterator has read the data set, and that has not asked for workers.

        Args:
            loader: the iterator's. Where it has a ``worker_init_fn``, that may divide the data set once there are
                workers.
        """
        workers = worker_pids(iterator)
        first = [report for report in self._read(workers) if "asked" in report]
        if not first or any(can_divide(report, own=True) for report in first):
            return False
        if workers:
            return True
        prepared = getattr(loader, "worker_init_fn", None) is not None
        return not prepared and not any(report["asked"] for report in first)

    def _judge_workers(self, workers: frozenset[int]) -> str | None:
        """Why the workers of one iterator do not divide their samples; ``None``: they do, or that is not known."""
        reports = self._read(workers)
        asked = [report for report in reports if "asked" in report]
        if len(workers) == 1:
            numbered = any(report["numbered"] and not can_divide(report, own=False) for report in asked)
            return ONLY_NUMBERED if numbered and self._own_workers > 1 else None
        if any(not can_divide(report, own=self._is_own) for report in asked):
            return UNDIVIDED
        digests = [set(report["values"].items()) for report in reports if "values" in report]
        if any(one & other for place, one in enumerate(digests) for other in digests[:place]):
            return SAME_SAMPLES
        return None

    def _read(self, workers: frozenset[int]) -> list[dict[str, Any]]:
        """Reports of these workers; of the script's own process where there are none."""
        if self._folder is None:
            return []
        if not workers:
            return read_reports(self._folder, os.getpid(), self._dataset)
        return [report for pid in sorted(workers) for report in read_reports(self._folder, pid)]


def can_divide(report: Mapping[str, Any], *, own: bool) -> bool:
    """Whether a data set that has asked this may yield a part of its samples in each worker.

    Args:
        own: there are as many workers as the script has, for which the data set may have been written.
    """
    return bool(report["divided"] or report["counted"] or (own and report["numbered"]))


def division_of(loader: Any, folder: str | None) -> Division | None:
    """What judges the data set of a loader; ``None``: it has indices, or is fastai's, which divides by itself.

    Args:
        folder: see :class:`Division`.
    """
    if not is_iterable_set(loader) or fastai.outer(loader) is not loader:
        return None
    drops_rest = bool(getattr(loader, "drop_last", False)) or getattr(loader, "batch_size", None) is None
    return Division(folder, loader.dataset, drops_rest=drops_rest)


def worker_pids(iterator: Any) -> frozenset[int]:
    """Process numbers of an iterator's workers; empty: it has none."""
    pids = (getattr(worker, "pid", None) for worker in getattr(iterator, "_workers", None) or ())
    return frozenset(pid for pid in pids if isinstance(pid, int))
