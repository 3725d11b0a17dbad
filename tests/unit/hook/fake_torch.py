"""The part of ``torch.utils.data.dataloader`` that the hook stands on, without torch: its names and its order of calls.

:func:`loader_module` makes a new module of this file, so that what one test patches another does not see. As
``torch/utils/data/dataloader.py`` in a folder, see :func:`write_package`, it serves child processes.
"""

from __future__ import annotations

import importlib.util
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any


class RandomSampler:
    """Backwards, which is shuffled enough."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.dataset) - 1, -1, -1))

    def __len__(self) -> int:
        return len(self.dataset)


class SequentialSampler(RandomSampler):
    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.dataset)))


class BatchSampler:
    def __init__(self, sampler: Any, batch_size: int) -> None:
        self.sampler, self.batch_size = sampler, batch_size

    def __iter__(self) -> Iterator[list[int]]:
        indices = list(self.sampler)
        for start in range(0, len(indices), self.batch_size):
            yield indices[start : start + self.batch_size]

    def __len__(self) -> int:
        return (len(self.sampler) + self.batch_size - 1) // self.batch_size


class _BaseDataLoaderIter:
    """Takes indices ahead, as workers do; ``broken`` numbers of workers fail."""

    broken: frozenset[int] = frozenset()
    unstartable: frozenset[int] = frozenset()

    def __init__(self, loader: Any) -> None:
        if loader.num_workers in self.unstartable:
            raise OSError("no more processes")
        self._loader, self._num_workers = loader, loader.num_workers
        self._workers = list(range(loader.num_workers))
        self._index_sampler = loader._index_sampler
        self._ahead: deque[Any] = deque()
        self.ended = False
        iter(self._index_sampler)  # torch iterates twice before it takes the first indices
        self._reset(loader, first_iter=True)

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._ahead.clear()
        self._sampler_iter = iter(self._index_sampler)
        if loader._dataset_kind == 1:
            self._of_worker = deque(iter(loader.dataset) for _ in range(max(1, self._num_workers)))

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __next__(self) -> Any:
        if self._num_workers in self.broken:
            raise RuntimeError("first line\nDataLoader worker (pid 7) is killed")
        if self._loader._dataset_kind == 1:
            return self._loader.collate_fn(self._of_an_iterable())
        depth = max(1, self._num_workers * (self._loader.prefetch_factor or 0))
        while len(self._ahead) < depth:
            try:
                self._ahead.append(next(self._sampler_iter))
            except StopIteration:
                break
        if not self._ahead:
            raise StopIteration
        late = not self._loader.in_order and len(self._ahead) > 1
        if late:
            self._ahead.rotate(-1)
        indices = self._ahead.popleft()
        if late:
            self._ahead.rotate(1)
        dataset = self._loader.dataset
        return self._loader.collate_fn(
            [dataset[index] for index in indices] if isinstance(indices, list) else dataset[indices]
        )

    def _of_an_iterable(self) -> list[Any]:
        while self._of_worker:
            worker = self._of_worker.popleft()
            found = list(islice(worker, self._loader.batch_size))
            if found:
                self._of_worker.append(worker)
                return found
        raise StopIteration

    def _shutdown_workers(self) -> None:
        self.ended = True


def _as_it_is(batch: Any) -> Any:
    return batch


class DataLoader:
    def __init__(
        self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
        pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None,
        generator=None, *, prefetch_factor=None, persistent_workers=False, in_order=True,
    ):  # fmt: skip
        if num_workers == 0 and (prefetch_factor is not None or persistent_workers or multiprocessing_context):
            raise ValueError("this needs workers")
        self.dataset, self.num_workers, self.pin_memory, self.timeout = dataset, num_workers, pin_memory, timeout
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.worker_init_fn, self.in_order, self.generator = worker_init_fn, in_order, generator
        self._DataLoader__multiprocessing_context = multiprocessing_context
        self._dataset_kind = 0 if hasattr(dataset, "__getitem__") else 1
        if sampler is None:
            sampler = (RandomSampler if shuffle else SequentialSampler)(dataset)
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size)
        self.batch_size, self.sampler, self.batch_sampler = batch_size, sampler, batch_sampler
        self.collate_fn = collate_fn or _as_it_is
        self.persistent_workers, self.drop_last = persistent_workers, drop_last
        self._iterator = None
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("batch_size", "batch_sampler", "sampler", "dataset", "persistent_workers") and hasattr(
            self, "_made"
        ):
            raise ValueError(f"{name} attribute should not be set after the loader is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        return self._DataLoader__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None and not self.num_workers:
            raise ValueError("multiprocessing_context can only be used with num_workers > 0")
        self._DataLoader__multiprocessing_context = context

    @property
    def _index_sampler(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return _BaseDataLoaderIter(self)

    def __iter__(self) -> Any:
        if not (self.persistent_workers and self.num_workers):
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def __len__(self) -> int:
        return len(self._index_sampler)


def loader_module() -> Any:
    """This file as the module ``torch.utils.data.dataloader``, new each time, and not in ``sys.modules``."""
    spec = importlib.util.spec_from_file_location("torch.utils.data.dataloader", __file__)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_package(folder: Path) -> None:
    """A package ``torch`` of this file, for a child process with the folder on its import path."""
    data = folder / "torch" / "utils" / "data"
    data.mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("__version__ = '9.9'\n")
    (folder / "torch" / "utils" / "__init__.py").write_text("")
    (data / "__init__.py").write_text("from torch.utils.data.dataloader import DataLoader\n")
    (data / "dataloader.py").write_text(Path(__file__).read_text())


class Numbers:
    """A data set of so many numbers, each of which is itself."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(index)
        self.read.append(index)
        return index


class Endless:
    """An iterable data set of so many numbers, of which each worker yields all."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))
