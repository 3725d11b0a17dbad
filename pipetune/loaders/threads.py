"""Loader workers that are threads of the training process: each decodes whole batches, in place.

Nothing is copied or sent: a batch is decoded into memory that the training loop then gets as it is. That pays where the
decoder lets go of Python's global lock while it works. One task per batch and not one per image: what Python does per
task is done once in so many images.

Why not ``ThreadPoolExecutor``: the interpreter waits at exit for all its queued tasks, so a training script that fails
would first decode what is left.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator

from pipetune.decoders.layout import Layout
from pipetune.loaders.contract import Batch
from pipetune.loaders.in_place import Make, batch_maker
from pipetune.loaders.order import Order
from pipetune.loaders.photos import Photos
from pipetune.records.sweep import Candidate

#: A thread ends after the image that it is at; it is given so long (s).
_END_S = 10.0


def open_batches(
    photos: Photos, candidate: Candidate, order: Order, layout: Layout, *, repeat: bool, own_process: bool, on_gpu: bool
) -> ThreadLoader:
    """See :mod:`pipetune.loaders.contract`. Threads outlive the end of an epoch, so nothing is repeated."""
    make = batch_maker(
        photos, layout, candidate.batch_size, pinned=candidate.pin_memory and on_gpu,
        ahead=candidate.num_workers * candidate.prefetch_depth,
    )  # fmt: skip
    return ThreadLoader(
        order, make, workers=candidate.num_workers, depth=candidate.prefetch_depth, in_order=candidate.in_order
    )


class ThreadLoader:
    """See :class:`pipetune.loaders.contract.Loader`. Threads start when it is iterated, once at a time.

    Args:
        order: what to load.
        make: makes a batch; called by several threads at a time.
        workers: number of threads.
        depth: batches that each of them keeps ready or is at.
        in_order: batches come as ``order`` has them; otherwise as they get ready.
    """

    def __init__(self, order: Order, make: Make, *, workers: int, depth: int, in_order: bool) -> None:
        self._order = order
        self._make = make
        self._workers = workers
        self._depth = depth
        self._in_order = in_order
        self._end: weakref.finalize[[], ThreadLoader] | None = None
        self._open = True

    def __iter__(self) -> Iterator[Batch]:
        if not self._open:
            raise ValueError("this loader is closed")
        self._end_threads()
        crew = _Crew(iter(self._order), self._make, most=self._workers * self._depth, in_order=self._in_order)
        # Also when nobody has this loader any more, and when the program ends. The threads know the crew only.
        self._end = weakref.finalize(self, crew.end)
        crew.start(self._workers)
        return self._batches(crew)

    def close(self) -> None:
        """End the threads and drop what they have made."""
        self._open = False
        self._end_threads()

    def _end_threads(self) -> None:
        if self._end is not None:
            self._end()
            self._end = None

    def _batches(self, crew: _Crew) -> Iterator[Batch]:
        # Holds the loader, so that the threads live as long as somebody iterates.
        while self._open and (batch := crew.next_batch()) is not None:
            yield batch
            del batch  # or it would be held until the next one is there


class _Crew:
    """The threads, what they are at and what they have made."""

    def __init__(self, tasks: Iterator[list[int]], make: Make, *, most: int, in_order: bool) -> None:
        self._tasks = tasks
        self._make = make
        self._most = most
        self._in_order = in_order
        self._pid = os.getpid()
        self._threads: list[threading.Thread] = []
        lock = threading.Lock()
        self._made = threading.Condition(lock)
        """A batch was made, or the order has come to its end."""
        self._room = threading.Condition(lock)
        """A batch was taken."""
        self._ready: dict[int, Batch | BaseException] = {}
        self._begun = self._taken = 0
        self._exhausted = self._stopped = False

    def start(self, workers: int) -> None:
        for number in range(workers):
            thread = threading.Thread(target=self._work, name=f"pipetune-loader-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """May be called again, and by a child that was forked, which has none of the threads."""
        self._stopped = True
        if os.getpid() != self._pid or threading.current_thread() in self._threads:
            # A worker may come here, too: as the one whose allocation made Python look for cycles, lock in hand.
            return
        with self._made:
            self._made.notify_all()
            self._room.notify_all()
            self._ready.clear()
        for thread in self._threads:
            thread.join(_END_S)
        self._ready.clear()

    def next_batch(self) -> Batch | None:
        """Wait for it; ``None`` after the last one.

        Raises:
            Exception: what a worker met while it made this batch.
            RuntimeError: in a process that was forked from the one that has the threads.
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
            number, tickets = task
            try:
                result: Batch | BaseException = self._make(tickets, lambda: self._stopped)
            except BaseException as error:  # the training loop is told, when it comes to this batch
                result = error
            with self._made:
                if not self._stopped:  # else it is not whole
                    self._ready[number] = result
                self._made.notify()
            del result  # the next one may be long in coming
        with self._made:  # whoever stopped us may not have been able to say so
            self._made.notify_all()
            self._room.notify_all()

    def _begin(self) -> tuple[int, list[int]] | None:
        with self._room:
            while self._begun - self._taken >= self._most and not self._stopped:
                self._room.wait()
            if self._stopped or self._exhausted:
                return None
            try:
                tickets = next(self._tasks, None)
            except Exception as error:  # a loop that waits is told when it comes to this batch
                self._ready[self._begun] = error
                self._begun += 1
                tickets = None
            if tickets is None:
                self._exhausted = True
                self._made.notify()
                self._room.notify_all()
                return None
            self._begun += 1
            return self._begun - 1, tickets
