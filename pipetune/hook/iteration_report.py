"""What an iterable data set asks and yields, reported by the process that iterates it: a loader worker, or the script.

A data set that divides itself among workers has to ask how many there are: by ``torch.utils.data.get_worker_info``, as
WebDataset, ``datasets``, litdata and streaming do, too, or as DataPipes with a sharding filter are told. torch reads an
iterable data set in one place, its fetcher, which is watched here. The reports are lines of one file per process in
the relay's folder, which forked and spawned workers know alike.

A line is ``{"dataset": number, "asked": …, "counted": …, "numbered": …, "divided": …}`` once the first batch is there,
and ``{"dataset": number, "values": {"1": digest}}`` once :data:`COMPARED` samples are or a shorter epoch ends.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

#: Modules with the function that a data set asks, and with the class that iterates it.
WORKER, FETCH = "torch.utils.data._utils.worker", "torch.utils.data._utils.fetch"
#: Modules of torch that ask on their own account: to collate, and to tell DataPipes how many workers there are.
_OWN_QUESTIONS = ("torch.utils.data._utils.collate", "torch.utils.data.dataloader")
#: Labels, keys and indices of so many samples are compared. Two workers with random labels of two classes have the
#: same ones once in 2**64 times.
COMPARED = 64
#: At the end of a shorter epoch so many are enough.
MIN_COMPARED = 16
#: Short epochs of one data set that are reported by one process.
_MAX_SHORT = 8
#: Depth of containers and number of items that are looked through for labels, and characters or numbers of a value.
_MAX_DEPTH, _MAX_ITEMS, _MAX_LENGTH = 3, 16, 4096


class IterationReports:
    """Watches the iterable data sets of a process and of the workers that it forks.

    Args:
        folder: takes one file per process.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._watched: _Iteration | None = None
        """The iteration that runs in this process at this moment."""
        self._counted_in = self._numbered_in = 0
        """Process in which the number of workers was read, by the data set or in ``worker_init_fn``; and the worker's
        own number."""
        self._recording: tuple[Any, Any] = (None, None)
        """torch's description of this worker, and what is handed out instead of it."""
        self._short: Counter[tuple[int, int]] = Counter()
        """Process and data set -> short epochs that were reported. A forked worker inherits those of the script."""

    def on_module(self, module: ModuleType) -> None:
        """Patch one of torch's modules :data:`WORKER` and :data:`FETCH`, before others import its names."""
        if module.__name__ == WORKER:
            module.get_worker_info = self._telling(module.get_worker_info)  # type: ignore[attr-defined]
        else:
            self._patch_fetcher(module._IterableDatasetFetcher)

    def _telling(self, original: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(original)
        def get_worker_info() -> Any:
            info = original()
            if sys._getframe(1).f_globals.get("__name__") in _OWN_QUESTIONS:
                return info
            if self._watched is not None:
                self._watched.asked = True
            return None if info is None else self._record_reads(info)

        return get_worker_info

    def _record_reads(self, info: Any) -> Any:
        """The description of a worker, which tells whether the number of workers is read from it."""
        if self._recording[0] is info:
            return self._recording[1]
        reports = self

        class WorkerInfo(type(info)):  # type: ignore[misc]
            def __getattribute__(self, name: str) -> Any:
                if name in ("num_workers", "__dict__"):
                    reports._counted_in = os.getpid()
                if name in ("id", "__dict__"):
                    reports._numbered_in = os.getpid()
                return super().__getattribute__(name)

        try:
            made = object.__new__(WorkerInfo)
            for name in (*getattr(info, "__dict__", ()), *getattr(type(info), "__slots__", ())):
                object.__setattr__(made, name, getattr(info, name))
        except Exception:  # torch of another version: what is read is not known, and nobody is accused
            self._counted_in = self._numbered_in = os.getpid()
            return info
        self._recording = (info, made)
        return made

    def _patch_fetcher(self, kind: Any) -> None:
        reports = self
        original_init, original_fetch = kind.__init__, kind.fetch

        @functools.wraps(original_init)
        def __init__(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
            self._pipetune = iteration = _Iteration(dataset)
            with reports._watching(iteration):
                original_init(self, dataset, *args, **kwargs)
            self.collate_fn = _Collating(self.collate_fn, iteration, reports)

        @functools.wraps(original_fetch)
        def fetch(self: Any, indices: Any) -> Any:
            iteration = getattr(self, "_pipetune", None)
            if iteration is None:
                return original_fetch(self, indices)
            try:
                with reports._watching(iteration):
                    batch = original_fetch(self, indices)
            except StopIteration:
                reports._end(iteration)
                raise
            reports._say_what_was_asked(iteration)
            if self.ended:
                reports._end(iteration)
            return batch

        kind.__init__, kind.fetch = __init__, fetch

    @contextlib.contextmanager
    def _watching(self, iteration: _Iteration | None) -> Iterator[None]:
        before, self._watched = self._watched, iteration
        try:
            yield
        finally:
            self._watched = before

    def _say_what_was_asked(self, iteration: _Iteration) -> None:
        if iteration.said:
            return
        iteration.said = True
        counted, numbered = self._counted_in == os.getpid(), self._numbered_in == os.getpid()
        self._write(iteration, asked=iteration.asked, counted=counted, numbered=numbered, divided=iteration.divided)

    def _end(self, iteration: _Iteration) -> None:
        if iteration.ended:
            return
        iteration.ended = True
        self._say_what_was_asked(iteration)
        reporter = (os.getpid(), iteration.dataset)
        if MIN_COMPARED <= iteration.samples < COMPARED and self._short[reporter] < _MAX_SHORT:
            self._short[reporter] += 1
            self._write(iteration, values=iteration.digests())

    def _write(self, iteration: _Iteration, **fields: Any) -> None:
        line = json.dumps({"dataset": iteration.dataset, **fields}) + "\n"
        with contextlib.suppress(OSError), open(file_of(self._folder, os.getpid()), "a", encoding="utf-8") as file:
            file.write(line)


class _Iteration:
    """One iteration over a data set."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = id(dataset)
        self.divided = has_sharding_filter(dataset)
        self.asked = self.said = self.ended = False
        self.samples = 0
        self._values: dict[str, list[Any]] = {}

    def take(self, samples: Sequence[Any]) -> bool:
        """Count samples, and keep what the first of them are known by; whether that is complete now."""
        before = self.samples
        self.samples += len(samples)
        for sample in samples[: max(0, COMPARED - before)]:
            for path, value in labels_in(sample):
                self._values.setdefault(path, []).append(value)
        return before < COMPARED <= self.samples

    def digests(self) -> dict[str, str]:
        """Place in a sample -> digest of what the first samples have there, where that tells samples apart."""
        length = min(self.samples, COMPARED)
        found = {}
        for path, values in self._values.items():
            if len(values) == length and tells_apart(values):
                found[path] = hashlib.blake2b(repr(values).encode(), digest_size=16).hexdigest()
        self._values = {}
        return found


class _Collating:
    """Takes the place of a fetcher's ``collate_fn``: sees the samples before they become a batch."""

    def __init__(self, collate: Callable[[Any], Any], iteration: _Iteration, reports: IterationReports) -> None:
        self._collate, self._iteration, self._reports = collate, iteration, reports

    def __call__(self, data: Any) -> Any:
        """The batch of these samples."""
        with contextlib.suppress(Exception):  # whatever a sample of the user's raises when it is looked at
            if self._iteration.take(data if isinstance(data, list) else [data]):
                self._reports._write(self._iteration, values=self._iteration.digests())
        with self._reports._watching(None):
            return self._collate(data)


def file_of(folder: str, pid: int) -> str:
    """The file that a process writes its reports to."""
    return os.path.join(folder, f"iterated-{pid}")


def read_reports(folder: str, pid: int, dataset: int | None = None) -> list[dict[str, Any]]:
    """What a process has reported so far.

    Args:
        dataset: the number of the one that is asked about; ``None``: whatever it has iterated.
    """
    try:
        lines = Path(file_of(folder, pid)).read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:
        return []
    reports = [json.loads(line) for line in lines]
    return [report for report in reports if dataset is None or report["dataset"] == dataset]


def has_sharding_filter(dataset: Any) -> bool:
    """Whether a DataPipe has a part that torch tells how many workers there are."""
    graph = sys.modules.get("torch.utils.data.graph")
    pipes = getattr(graph, "DataPipe", ())
    if graph is None or not isinstance(dataset, pipes):
        return False
    try:
        waiting, parts = [graph.traverse_dps(dataset)], []
    except Exception:  # a pipe that cannot be traversed
        return False
    while waiting:
        for pipe, sources in waiting.pop().values():
            parts.append(pipe)
            waiting.append(sources)
    return any(hasattr(pipe, "apply_sharding") for pipe in parts)


def labels_in(sample: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Whole numbers and texts of a sample, each with its place: labels, keys and indices. Pixels are left out."""
    if isinstance(sample, int | str | bytes):
        yield path, sample[:_MAX_LENGTH] if isinstance(sample, str | bytes) else int(sample)
    elif isinstance(sample, Mapping | list | tuple):
        if depth < _MAX_DEPTH:
            items = sample.items() if isinstance(sample, Mapping) else enumerate(sample)
            for _, (name, item) in zip(range(_MAX_ITEMS), items, strict=False):
                yield from labels_in(item, f"{path}.{name}" if path else str(name), depth + 1)
    elif hasattr(sample, "tolist") and _is_short_row(sample):
        yield path, sample.tolist()


def _is_short_row(values: Any) -> bool:
    """Whether a tensor or an array is a whole number, or a row of them as of a batch's labels."""
    shape = tuple(getattr(values, "shape", (0, 0)))
    whole = "int" in str(getattr(values, "dtype", ""))
    return whole and len(shape) <= 1 and all(count <= _MAX_LENGTH for count in shape)


def tells_apart(values: Sequence[Any]) -> bool:
    """Whether a sequence is known by its values: it changes often, and does not repeat itself.

    Of data in the order of their classes, or with labels in turn, parts that differ have the same labels.
    """
    count = len(values)
    changes = sum(before != after for before, after in itertools.pairwise(values))
    if count < MIN_COMPARED or changes < count // 4:
        return False
    return not any(values[:-period] == values[period:] for period in range(1, count // 2 + 1))
