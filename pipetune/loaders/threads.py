"""Loader workers that are threads of the training process: each decodes whole batches, in place.

A batch is decoded into memory that the training loop gets as it is: nothing is copied or sent. It is faster than
processes with a decoder that releases the GIL. A task is a batch and not an image, so that the cost of a task in Python
is shared by all its images.

Why not ``ThreadPoolExecutor``: the interpreter waits at exit for all its queued tasks, so a training script that fails
would first decode what is left.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pipetune.decoders.layout import Layout
from pipetune.loaders.contract import Batch
from pipetune.loaders.in_place import Make, batch_maker
from pipetune.loaders.order import Order
from pipetune.loaders.photos import Photos
from pipetune.records.sweep import Candidate

if TYPE_CHECKING:
    from pipetune.loaders.after_copies import AfterCopies

#: Longest time that closing waits for all threads, each of which ends after the image it is decoding (s).
_END_S = 10.0


def open_batches(
    photos: Photos, candidate: Candidate, order: Order, layout: Layout, *, repeat: bool, own_process: bool,
    device_index: int | None,
) -> ThreadLoader:  # fmt: skip
    """See :mod:`pipetune.loaders.contract`. Threads outlive the end of an epoch, so nothing is repeated."""
    copies = None
    if device_index is not None:
        from pipetune.loaders.after_copies import AfterCopies

        copies = AfterCopies(device_index)
    ahead = candidate.num_workers * candidate.prefetch_depth
    make = batch_maker(photos, layout, candidate.batch_size, copies=copies, ahead=ahead)
    return ThreadLoader(
        order, make, workers=candidate.num_workers, ahead=ahead, in_order=candidate.in_order, copies=copies,
    )  # fmt: skip


class ThreadLoader:
    """A loader whose workers are threads (see :class:`pipetune.loaders.contract.Loader`).

    The threads start when it is iterated; a second iteration ends the first one.

    Args:
        order: the samples of each batch, as ``make`` takes them.
        make: makes a batch; called by several threads at a time.
        workers: number of threads.
        ahead: number of batches that are ready or being made.
        in_order: batches come in the order of ``order``; otherwise as they get ready.
        copies: to a CUDA device, of the batches; ``None``: they go to none.
    """

    def __init__(
        self,
        order: Iterable[Any],
        make: Make,
        *,
        workers: int,
        ahead: int,
        in_order: bool,
        copies: AfterCopies | None = None,
    ) -> None:
        self._order = order
        self._make = make
        self._workers = workers
        self._ahead = ahead
        self._in_order = in_order
        self._copies = copies
        self._end: weakref.finalize[[], ThreadLoader] | None = None
        self._open = True

    def __iter__(self) -> Iterator[Batch]:
        if not self._open:
            raise ValueError("this loader is closed")
        self._end_threads()
        pool = _WorkerPool(iter(self._order), self._make, limit=self._ahead, in_order=self._in_order)
        # They also end when this loader is garbage, and when the program exits: the threads refer to the pool only.
        self._end = weakref.finalize(self, pool.end)
        pool.start(self._workers)
        return self._batches(pool)

    def close(self) -> None:
        """End the threads and drop what they have made."""
        self._open = False
        self._end_threads()

    def _end_threads(self) -> None:
        if self._end is not None:
            self._end()
            self._end = None

    def _batches(self, pool: _WorkerPool) -> Iterator[Batch]:
        # The generator refers to the loader, so that the threads live as long as it is iterated.
        while self._open and (batch := pool.next_batch()) is not None:
            yield batch
            del batch  # otherwise it would be held until the next one is ready
            if self._copies is not None:
                self._copies.asked()


class _WorkerPool:
    """The threads, the batches that they are making and those that they have made."""

    def __init__(self, tasks: Iterator[Any], make: Make, *, limit: int, in_order: bool) -> None:
        self._tasks = tasks
        self._make = make
        self._limit = limit
        self._in_order = in_order
        self._pid = os.getpid()
        self._threads: list[threading.Thread] = []
        lock = threading.Lock()
        self._made = threading.Condition(lock)
        """Signalled when a batch was made, or the order has ended."""
        self._room = threading.Condition(lock)
        """Signalled when a batch was taken."""
        self._ready: dict[int, Batch | BaseException] = {}
        self._begun = self._taken = 0
        self._exhausted = self._stopped = False

    def start(self, workers: int) -> None:
        for number in range(workers):
            thread = threading.Thread(target=self._work, name=f"pipetune-loader-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """End the threads. Safe to call twice, and in a forked child, which has none of the threads."""
        self._stopped = True
        if os.getpid() != self._pid or threading.current_thread() in self._threads:
            # A thread of the pool gets here where its own allocation starts the garbage collector, lock in hand.
            return
        with self._made:
            self._made.notify_all()
            self._room.notify_all()
            self._ready.clear()
        deadline = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._ready.clear()

    def next_batch(self) -> Batch | None:
        """The next batch, as soon as it is made; ``None`` after the last one.

        Raises:
            Exception: what a worker raised while it made this batch.
            RuntimeError: the process was forked from the one that has the threads.
        """
        if os.getpid() != self._pid:
            raise RuntimeError("this loader's threads are in the process that opened it: open one after the fork")
        with self._made:
            while self._stopped or (result := self._take()) is None:
                if self._stopped or (self._exhausted and self._taken == self._begun):
                    return None
                self._made.wait()
            self._room.notify()
        if isinstance(result, BaseException):
            raise result
        return result

    def _take(self) -> Batch | BaseException | None:
        number = self._taken if self._in_order else next(iter(self._ready), -1)
        result = self._ready.pop(number, None)
        self._taken += result is not None
        return result

    def _work(self) -> None:
        while (task := self._begin()) is not None:
            number, samples = task
            try:
                result: Batch | BaseException = self._make(samples, lambda: self._stopped)
            except BaseException as error:  # raised in the training loop when it asks for this batch
                result = error
            with self._made:
                if not self._stopped:  # otherwise it is incomplete
                    self._ready[number] = result
                self._made.notify()
            del result  # otherwise it would be held until the next one is made
        with self._made:  # what ended the pool may not have been able to notify
            self._made.notify_all()
            self._room.notify_all()

    def _begin(self) -> tuple[int, Any] | None:
        with self._room:
            while self._begun - self._taken >= self._limit and not self._stopped:
                self._room.wait()
            if self._stopped or self._exhausted:
                return None
            try:
                samples = next(self._tasks, None)
            except Exception as error:  # raised in the training loop when it asks for this batch
                self._ready[self._begun] = error
                self._begun += 1
                samples = None
            if samples is None:
                self._exhausted = True
                self._made.notify()
                self._room.notify_all()
                return None
            self._begun += 1
            return self._begun - 1, samples
