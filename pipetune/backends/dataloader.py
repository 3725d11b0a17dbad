"""The torch ``DataLoader`` around a decode function: what pillow, opencv and torchvision have in common."""

from __future__ import annotations

import functools
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from pipetune.backends.contract import Batch, Loader, Trial, bad_image, is_shortage
from pipetune.backends.crop import Crop, draw_crop
from pipetune.backends.order import EndlessOrder
from pipetune.datasets.index import ImageSet
from pipetune.parent_death import end_with_parent
from pipetune.records import Candidate, Workload
from pipetune.worker_files import announce_worker

#: ``load(path, window, size) -> float32 [3, size, size]``; ``window(height, width)`` gives the crop once the size is
#: known. It raises whatever its library raises for a bad file.
LoadFunction = Callable[[str, Callable[[int, int], Crop], int], torch.Tensor]


#: Workers whose end of the line is dead may take so long to be dead themselves (s).
_LAST_MOMENT_S = 0.2
#: Edge (px) to which a trial resizes: only decoding matters.
_TRIAL_SIZE = 8


def trial_of(load: LoadFunction) -> Trial:
    """Tries a file with the function that the loader uses."""

    def try_decode(path: str) -> str | None:
        try:
            load(path, lambda height, width: Crop(0, 0, height, width, False), _TRIAL_SIZE)
        except Exception as error:  # each decoder has exceptions of its own
            if is_shortage(error):
                raise
            return str(error) or type(error).__name__
        return None

    return try_decode


class PhotoDataset(Dataset[tuple[torch.Tensor, int]]):
    """Maps a ticket of :class:`EndlessOrder` to (image float32 ``[3, S, S]``, label)."""

    def __init__(self, images: ImageSet, load: LoadFunction, size: int, seed: int) -> None:
        # Two flat lists instead of records: workers share them by copy-on-write, and reading a record's attributes
        # would touch (and so copy) a page per record (pytorch issue 13246).
        self._paths = [image.path for image in images.images]
        self._labels = [image.label for image in images.images]
        self._load = load
        self._size = size
        self._seed = seed

    def __getitem__(self, ticket: int) -> tuple[torch.Tensor, int]:
        position = ticket % len(self._paths)
        path = self._paths[position]
        try:
            image = self._load(path, lambda height, width: draw_crop(self._seed, ticket, height, width), self._size)
        except Exception as error:  # each decoder has exceptions of its own; the file's name is what helps
            if is_shortage(error):
                raise
            raise bad_image(path, error) from error
        return image, self._labels[position]


class _TorchLoader:
    def __init__(self, dataloader: DataLoader[Any]) -> None:
        self._dataloader: DataLoader[Any] | None = dataloader
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Batch]:
        if self._dataloader is None:
            raise ValueError("this loader is closed")
        self._iterator = iter(self._dataloader)
        if self._dataloader.num_workers and threading.current_thread() is threading.main_thread():
            # torch raises from its SIGCHLD handler, wherever the program happens to be when a worker dies: what is then
            # half made stays behind. It looks after its workers while it waits for them, too.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        # The generator must hold no reference of its own: dropping the last one is what ends torch's workers.
        while self._iterator is not None:
            try:
                images, labels = next(self._iterator)
            except StopIteration:
                return
            except Exception as error:
                raise (_death_of_a_worker(self._iterator) or error) from error
            yield Batch(images, labels)

    def close(self) -> None:
        # With persistent workers the DataLoader holds the iterator, too.
        self._iterator = self._dataloader = None


def _death_of_a_worker(iterator: Any) -> RuntimeError | None:
    """Which worker was killed, and by what, in torch's own words; ``None`` where none was."""
    deadline = time.monotonic() + _LAST_MOMENT_S
    for worker in getattr(iterator, "_workers", ()):
        worker.join(timeout=max(0.0, deadline - time.monotonic()))
        if worker.exitcode is not None and worker.exitcode < 0:
            name = signal.strsignal(-worker.exitcode) or f"signal {-worker.exitcode}"
            return RuntimeError(f"DataLoader worker (pid {worker.pid}) is killed by signal: {name}.")
    return None


def open_dataloader(candidate: Candidate, workload: Workload, images: ImageSet, load: LoadFunction) -> Loader:
    """An endless torch ``DataLoader`` over ``images`` as ``candidate`` configures it."""
    parallel = candidate.num_workers > 0
    epochs = 1 if workload.cache == "cold" else None
    dataloader = DataLoader(
        PhotoDataset(images, load, workload.image_size, workload.seed),
        batch_sampler=EndlessOrder(len(images.images), candidate.batch_size, workload.seed, epochs),
        num_workers=candidate.num_workers,
        prefetch_factor=candidate.prefetch_depth if parallel else None,
        pin_memory=candidate.pin_memory,
        persistent_workers=parallel,
        # Python 3.14 starts workers by other means, under which their parent is not this process.
        multiprocessing_context="fork" if parallel else None,
        worker_init_fn=functools.partial(_start_worker, os.getpid()) if parallel else None,
    )
    return _TorchLoader(dataloader)


def _start_worker(parent_pid: int, worker_id: int) -> None:
    # The parent's number is taken before the fork: a worker whose parent has died meanwhile would find itself adopted
    # and take the adopter for its parent, as torch's own watchdog does.
    end_with_parent(parent_pid)
    announce_worker()
    torch.set_num_threads(1)
    # A worker hands its batches over through a socket, for which it makes a temporary folder that a kill leaves behind.
    # An abstract address (unix(7)) needs no file; multiprocessing knows them, and its key guards the socket as before.
    connection.arbitrary_address = lambda family: f"\0pipetune-{os.getpid()}-{secrets.token_hex(8)}"  # type: ignore[attr-defined]
