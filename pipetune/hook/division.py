"""Whether an iterable data set divides its samples among workers, judged by what its processes have reported.

First sign: a data set that never asks how many workers there are cannot divide its samples among them. Second: two
workers whose first samples have the same labels, keys or indices yield the same samples. Third: two workers that each
yield as many samples in an epoch as a single process does. Pixels are not compared: random augmentation changes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pipetune.hook import fastai
from pipetune.hook.guards import is_iterable_set
from pipetune.hook.iteration_report import read_reports

#: Part of an epoch's samples that a worker of several yields at least where each of them yields all: the last batch of
#: an epoch may be left out.
_WHOLE_EPOCH = 0.9
UNDIVIDED = (
    "the IterableDataset does not ask torch.utils.data.get_worker_info how many workers there are, so each of them "
    "would yield every sample"
)
SAME_SAMPLES = (
    "two workers yield the same samples: the IterableDataset does not divide its data among workers, so each sample "
    "would come as often as there are workers"
)
WHOLE_EPOCHS = (
    "each worker yields as many samples as an epoch has: the IterableDataset does not divide its data among workers, "
    "so each sample would come as often as there are workers"
)


class RepeatedSamplesError(Exception):
    """Several workers yield the same samples."""


class Division:
    """Judges the data set of one loader, over all iterators that are made of it.

    Args:
        folder: with the reports; ``None``: nothing is reported, and nothing is known.
        dataset: of the loader.
    """

    def __init__(self, folder: str | None, dataset: Any) -> None:
        self._folder, self._dataset = folder, id(dataset)
        self._iterators: list[frozenset[int]] = []
        """Processes of the workers of each iterator since :meth:`begin`."""
        self._alone_samples: int | None = None
        """Of an epoch that one process has read alone."""

    def begin(self) -> None:
        """Another measurement begins, with other workers."""
        self._iterators = []

    def refuse_repeats(self, source: Any) -> None:
        """Refuse the present workers of a loader where they yield each sample several times.

        Args:
            source: of the loader's batches (:class:`pipetune.hook.source.Source`).

        Raises:
            RepeatedSamplesError: they do. As many workers as the script has are its own affair.
        """
        fault = self.find_repeats(source)
        if fault is not None and not has_own_workers(source):
            raise RepeatedSamplesError(fault)

    def find_repeats(self, source: Any) -> str | None:
        """As :meth:`find_fault` of the source's iterator; ``None`` also while kept batches are replayed."""
        return None if source.replaying else self.find_fault(source.inner, own=has_own_workers(source))

    def find_fault(self, iterator: Any, *, own: bool = False) -> str | None:
        """Why these workers, or those of an iterator before since :meth:`begin`, do not divide their samples.

        Args:
            iterator: torch's, at this moment.
            own: there are as many workers as the script has. The data set may have been written for that number, and
                ask which of them it is in alone.

        Returns:
            ``None``: they divide them, or that is not known yet.
        """
        workers = worker_pids(iterator)
        if workers not in self._iterators:
            self._iterators.append(workers)
        faults = (self._find_fault_of(each, own=own) for each in self._iterators)
        return next((fault for fault in faults if fault is not None), None)

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

    def _find_fault_of(self, workers: frozenset[int], *, own: bool) -> str | None:
        reports = self._read(workers)
        if len(workers) <= 1:
            ends = [report["ended"] for report in reports if "ended" in report]
            self._alone_samples = max(ends, default=self._alone_samples)
            return None
        if any(not can_divide(report, own=own) for report in reports if "asked" in report):
            return UNDIVIDED
        digests = [set(report["values"].items()) for report in reports if "values" in report]
        if any(one & other for place, one in enumerate(digests) for other in digests[:place]):
            return SAME_SAMPLES
        ends = [report["ended"] for report in reports if "ended" in report]
        whole = self._alone_samples and [samples >= _WHOLE_EPOCH * self._alone_samples for samples in ends]
        return WHOLE_EPOCHS if whole and sum(whole) > 1 else None

    def _read(self, workers: frozenset[int]) -> list[dict[str, Any]]:
        """Reports of these workers; of the script's own process where there are none."""
        if self._folder is None:
            return []
        if not workers:
            return read_reports(self._folder, os.getpid(), self._dataset)
        return [report for pid in sorted(workers) for report in read_reports(self._folder, pid)]


def has_own_workers(source: Any) -> bool:
    """Whether a source has as many workers as the script's loader has."""
    script_has = source.loader.num_workers
    return bool(source.settings.get("num_workers", script_has) == script_has)


def can_divide(report: Mapping[str, Any], *, own: bool) -> bool:
    """Whether a data set that has asked this may yield a part of its samples in each worker.

    Args:
        own: see :meth:`Division.find_fault`.
    """
    return bool(report["divided"] or report["counted"] or (own and report["numbered"]))


def division_of(loader: Any, folder: str | None) -> Division | None:
    """What judges the data set of a loader; ``None``: it has indices, or is fastai's, which divides by itself.

    Args:
        folder: see :class:`Division`.
    """
    if not is_iterable_set(loader) or fastai.outer(loader) is not loader:
        return None
    return Division(folder, loader.dataset)


def worker_pids(iterator: Any) -> frozenset[int]:
    """Process numbers of an iterator's workers; empty: it has none."""
    pids = (getattr(worker, "pid", None) for worker in getattr(iterator, "_workers", None) or ())
    return frozenset(pid for pid in pids if isinstance(pid, int))
