"""The loader ``torch``: a ``DataLoader`` around a decode function, in two variants. torch manages the processes.

The *plain* variant is what a training script has: a data set of samples, collated by torch into new memory. The *ring*
variant gives each worker a whole batch as its task, and a slot in shared memory that is used again: nothing is collated
or copied, there are no page faults, and only the slot's number is sent back. Where batches go to a CUDA device the ring
is page-locked once; in the plain variant torch copies each batch into page-locked memory, in a thread.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from pipetune.candidates.fit import ring_slots
from pipetune.candidates.torch_arguments import dataloader_arguments
from pipetune.decoders.layout import Layout
from pipetune.loaders.after_copies import AfterCopies
from pipetune.loaders.augmenting import Mixing
from pipetune.loaders.buffers import SharedRing
from pipetune.loaders.contract import Batch, Loader
from pipetune.loaders.in_place import InlineLoader, batch_maker
from pipetune.loaders.order import Order
from pipetune.loaders.photos import Photos
from pipetune.loaders.worker_start import fork_beside_threads, worker_start
from pipetune.processes.shm_files import remove_own_files
from pipetune.records.sweep import Candidate

#: Longest time between the end of a worker's connection and the end of its process (s).
_LAST_MOMENT_S = 0.2


class TorchLoader:
    """See :class:`pipetune.loaders.contract.Loader`.

    Args:
        dataloader: yields what ``receive`` turns into a batch.
        receive: turns it into a batch.
        repeat: iterate the ``dataloader`` again and again, because its order ends.
        own_process: the process is a child of pipetune, which measures; otherwise it is the user's.
        device_index: of the CUDA device that the batches go to.
    """

    def __init__(
        self, dataloader: DataLoader[Any], receive: Any, *, repeat: bool, own_process: bool,
        device_index: int | None = None,
    ) -> None:  # fmt: skip
        self._dataloader: DataLoader[Any] | None = dataloader
        self._receive = receive
        self._repeat = repeat
        self._own_process = own_process
        self._device_index = device_index
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Batch]:
        if self._dataloader is None:
            raise ValueError("this loader is closed")
        if not self._dataloader.persistent_workers:
            self._end_workers()
        self._iterator = self._new_iterator(self._dataloader)
        in_main = threading.current_thread() is threading.main_thread()
        if self._own_process and self._dataloader.num_workers and in_main:
            # torch raises from its SIGCHLD handler, at whatever point the program is when a worker dies, and leaves
            # behind what is half made then. It also checks its workers while it waits for them.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self._batches()

    def _new_iterator(self, dataloader: DataLoader[Any]) -> Iterator[Any]:
        # The thread that page-locks batches works on the device that is current now.
        device = contextlib.nullcontext() if self._device_index is None else torch.cuda.device(self._device_index)
        # A change of the filters makes Python repeat the warnings that it shows once.
        forks = dataloader.num_workers and not (dataloader.persistent_workers and self._iterator is not None)
        with device, fork_beside_threads() if forks else contextlib.nullcontext():
            return iter(dataloader)

    def _batches(self) -> Iterator[Batch]:
        # The generator must hold no reference of its own: torch ends its workers with the last reference.
        empty = True
        while self._iterator is not None:
            try:
                got = next(self._iterator)
            except StopIteration:
                if not self._repeat or empty or self._dataloader is None:
                    return
                self._iterator, empty = self._new_iterator(self._dataloader), True
                continue
            except Exception as error:
                raise (_death_of_a_worker(self._iterator) or error) from error
            empty = False
            batch = self._receive(got)
            del got
            yield batch
            del batch

    def close(self) -> None:
        """See :class:`pipetune.loaders.contract.Loader`."""
        self._dataloader = None
        self._end_workers()

    def _end_workers(self) -> None:
        # torch's workers end when the iterator's last reference goes. With persistent workers the DataLoader has one,
        # and so has the traceback of an error that is kept.
        end = getattr(self._iterator, "_shutdown_workers", None)
        self._iterator = None
        if end is not None:
            end()


def open_batches(
    photos: Photos, candidate: Candidate, order: Order, layout: Layout, *, repeat: bool, own_process: bool,
    device_index: int | None,
) -> Loader:  # fmt: skip
    """See :mod:`pipetune.loaders.contract`."""
    if not candidate.reuse_buffers:
        return plain_loader(
            photos, candidate, order, layout, repeat=repeat, own_process=own_process, device_index=device_index
        )
    copies = None if device_index is None else AfterCopies(device_index)
    if candidate.num_workers:
        return ring_loader(photos, candidate, order, layout, repeat=repeat, own_process=own_process, copies=copies)
    return InlineLoader(order, batch_maker(photos, layout, candidate.batch_size, copies=copies, ahead=0))


def plain_loader(
    photos: Photos, candidate: Candidate, order: Order, layout: Layout, *, repeat: bool, own_process: bool,
    device_index: int | None,
) -> TorchLoader:  # fmt: skip
    """The plain variant: ``DataLoader(dataset, batch_sampler=order, ...)``, as a script has it."""
    samples: Dataset[Any] = _Samples(photos, layout)
    collate: dict[str, Any] = {}
    if photos.mixing is not None:  # as torchvision's reference training does, where batches are collated
        samples, collate = _NumberedSamples(photos, layout), {"collate_fn": partial(_collate_mixed, photos.mixing)}
    dataloader = DataLoader(samples, batch_sampler=order, **collate, **settings_of(candidate))
    return TorchLoader(
        dataloader, lambda got: Batch(*got), repeat=repeat, own_process=own_process, device_index=device_index
    )


class _Samples(Dataset[tuple[torch.Tensor, int]]):
    """Sample index -> (image ``[3, S, S]``, label)."""

    def __init__(self, photos: Photos, layout: Layout) -> None:
        self._photos = photos
        self._layout = layout

    def __getitem__(self, sample_index: int) -> tuple[torch.Tensor, int]:
        image = np.empty(self._layout.shape(1), self._layout.dtype)
        self._photos.decode(sample_index, self._layout.sample(image, 0))
        return torch.from_numpy(image[0]), self._photos.label(sample_index)


class _NumberedSamples(_Samples):
    """Sample index -> (image, label, sample index): for batches that are mixed."""

    def __getitem__(self, sample_index: int) -> Any:
        return (*super().__getitem__(sample_index), sample_index)


def _collate_mixed(mixing: Mixing, samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch as torch collates it, its images mixed."""
    first_sample_index = samples[0][2]
    images, labels, _ = default_collate(samples)
    mixing.mix(images.numpy(), first_sample_index)
    return images, torch.from_numpy(mixing.labels(labels.numpy(), first_sample_index))


class _Made(NamedTuple):
    """What a worker sends: the number of a slot, or the images themselves where no slot was free."""

    slot: int | None
    labels: npt.NDArray[Any]
    images: torch.Tensor | None


def ring_loader(
    photos: Photos, candidate: Candidate, order: Order, layout: Layout, *, repeat: bool, own_process: bool,
    copies: AfterCopies | None,
) -> TorchLoader:  # fmt: skip
    """The ring variant: whole batches in shared memory that is used again.

    Raises:
        RuntimeError: /dev/shm has too little space.
    """
    slots = ring_slots(candidate, on_gpu=copies is not None)
    ring = SharedRing(layout, candidate.batch_size, slots, copies)
    dataloader = DataLoader(
        _Batches(photos, layout, ring.memory), batch_size=None, sampler=_Tasks(order, ring), collate_fn=_as_it_is,
        **{**settings_of(candidate), "pin_memory": False},
    )  # fmt: skip

    def receive(made: _Made) -> Batch:
        if made.slot is not None:
            images = ring.lend(made.slot, len(made.labels))
        else:
            assert made.images is not None
            images = made.images if copies is None else copies.pinned(made.images.numpy())
        labels = torch.from_numpy(made.labels) if copies is None else copies.pinned(made.labels)
        return Batch(layout.images(images), labels)

    return TorchLoader(dataloader, receive, repeat=repeat, own_process=own_process)


class _Tasks:
    """A sampler of tasks: the samples of a batch, and the slot to decode them into."""

    def __init__(self, order: Order, ring: SharedRing) -> None:
        self._order = order
        self._ring = ring

    def __iter__(self) -> Iterator[tuple[int | None, list[int]]]:
        # When the first task is asked for, workers have dropped the tasks of an earlier iterator.
        self._ring.take_back()
        for sample_indices in self._order:
            # A training loop may keep more batches than there are slots. Then a worker makes one in memory of its own.
            yield self._ring.take(), sample_indices


class _Batches(Dataset[_Made]):
    """Task -> batch."""

    def __init__(self, photos: Photos, layout: Layout, memory: torch.Tensor) -> None:
        self._photos = photos
        self._layout = layout
        self._memory = memory

    def __getitem__(self, task: tuple[int | None, list[int]]) -> _Made:
        slot, sample_indices = task
        images = None
        if slot is not None:
            batch = self._memory[slot].numpy()
        else:
            images = self._outside_the_ring(len(sample_indices))
            batch = images.numpy()
        self._photos.fill(sample_indices, batch)
        return _Made(slot, self._photos.targets(sample_indices), images)

    def _outside_the_ring(self, count: int) -> torch.Tensor:
        """Shared memory for a batch that has no slot.

        It is taken here and not when the batch is sent, where torch would lose the error and wait forever.

        Raises:
            RuntimeError: /dev/shm has too little space.
        """
        dtype = torch.uint8 if self._layout.uint8 else torch.float32
        began_ns = time.time_ns()
        try:
            return torch.empty(self._layout.shape(count), dtype=dtype).share_memory_()
        except RuntimeError as error:
            remove_own_files(began_ns)
            raise RuntimeError(
                "the training loop keeps more batches than /dev/shm has room for; keep fewer, give it more (docker run "
                "--shm-size), or use loader='threads'"
            ) from error


def _as_it_is(made: _Made) -> _Made:
    return made


def settings_of(candidate: Candidate) -> dict[str, Any]:
    """Arguments of torch's ``DataLoader`` besides the data set and the sampler."""
    arguments = dataloader_arguments(candidate)
    del arguments["batch_size"]  # the sampler's
    starts = worker_start(candidate.start_method) if candidate.num_workers else None
    return {**arguments, "worker_init_fn": starts}


def _death_of_a_worker(iterator: Any) -> RuntimeError | None:
    """An error that names the worker that was killed, and its signal, in torch's words; ``None``: none was."""
    deadline = time.monotonic() + _LAST_MOMENT_S
    for worker in getattr(iterator, "_workers", ()):
        worker.join(timeout=max(0.0, deadline - time.monotonic()))
        if worker.exitcode is not None and worker.exitcode < 0:
            name = signal.strsignal(-worker.exitcode) or f"signal {-worker.exitcode}"
            return RuntimeError(f"DataLoader worker (pid {worker.pid}) is killed by signal: {name}.")
    return None
