"""Where a loop's batches come from: the script's loader as it is, the same with other settings, or kept batches."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any

from pipetune.hook.decoder import Swap, swap_for
from pipetune.hook.describe import true_length
from pipetune.hook.fastai import outer
from pipetune.hook.guards import is_iterable_set, state_of
from pipetune.hook.kept import KeptBatches
from pipetune.hook.lasting_workers import refuse_lasting_workers
from pipetune.hook.seams import GetIterator
from pipetune.hook.stream import IndexStream
from pipetune.usercode import loader_view as view

#: Workers are not started again, to see how long that takes, once it has taken so long (s).
_STARTS_S = 1.0


class Source:
    """The batches of one loader: exactly as many in an epoch as the script's loader has, wherever they come from.

    Args:
        loader: of the script.
        original: makes its iterators.
        all_cores: that the process began with.
    """

    def __init__(self, loader: Any, original: GetIterator, all_cores: tuple[int, ...] | None = None) -> None:
        self.loader, self._original, self._all_cores = loader, original, all_cores
        self.stream = None if is_iterable_set(loader) else IndexStream(loader._index_sampler)
        self.kept = KeptBatches()
        self.settings: Mapping[str, Any] = {}
        """Other than the script's."""
        self.swap: Swap | None = None
        """Another decoder, once one was asked for and compared."""
        self.undelivered: deque[Any] = deque()
        """Batches of an iterator that was ended, which come first."""
        self.epoch_batches: int | None = None
        """Batches of a whole epoch with the present settings, once one has ended."""
        self._own_batches: int | None = None
        """Batches of the last whole epoch with the script's own settings."""
        self.delivered = 0
        """Batches of this epoch that the loop has got."""
        self.whole = True
        """Of this epoch, all of them were loaded with the present settings."""
        self.renewed: set[str] = set()
        """Attributes of the data set that the script was seen to change between two epochs."""
        self.is_taken_beside = False
        """The loop was seen to iterate the loader while an epoch of it was not over."""
        self._kept_before = False
        """Kept batches are of the data set in whose place this one came."""
        self._dataset_state: dict[str, Any] | None = None
        """When the epoch ended: what the data set changes within an epoch is its own affair."""
        self._ended = self.replaying = False
        self._collected = False
        """Garbage was collected, see :meth:`time_starts`."""
        self._length: tuple[int | None] | None = None
        self._opened = loader
        """What the iterator was made of: the loader, or a view of it."""
        self.opened_ns = time.monotonic_ns()
        self.inner = self._open_as_is()
        self.open_s = (time.monotonic_ns() - self.opened_ns) / 1e9
        self.awaits_first, self.first_s = True, 0.0

    def _open_as_is(self) -> Any:
        """The script's own iterator, which takes its indices from the stream, also when its workers live on."""
        if self.stream is None:
            return self._original(self.loader)
        name = "batch_sampler" if self.loader.batch_sampler is not None else "sampler"
        values = vars(self.loader)  # past the class's __setattr__, which refuses
        before = values[name]
        values[name] = self.stream
        try:
            return self._original(self.loader)
        finally:
            values[name] = before

    def opened_inner(self) -> Any:
        """torch's own iterator, for whoever looks at it; it is made now where the loop has not needed it yet."""
        if self.inner is None:
            self.open_again()
        return self.inner

    @property
    def length(self) -> int | None:
        """Batches of this epoch, as the script's loader tells, or as its last epoch had; ``None``: neither is known."""
        if self._length is None:  # not asked again with each batch: the user's data set computes it
            length = true_length(outer(self.loader))
            self._length = (self._own_batches if length is None else length,)
        return self._length[0]

    def replay(self) -> None:
        """From now on kept batches are handed out: of this data set, because another one may have other classes."""
        self.replaying = True
        if self._kept_before:
            self._kept_before = False
            self.close()
            with contextlib.suppress(Exception):  # the loop did not ask for these batches
                self.open_again()
                self.kept.replace(islice(self.inner, len(self.kept)))
            self.close()

    def begin_epoch(self, loader: Any | None = None, *, open_now: bool = True) -> None:
        """The loop begins another epoch: nothing of the one before comes any more.

        Args:
            loader: that it iterates over, where it has made another one in place of the first.
            open_now: start the workers, as the script's loader does; else they start with its first batch.
        """
        if loader is not None and loader is not self.loader:
            view.end(self.inner)
            if self.swap is not None and loader.dataset is not self.loader.dataset:
                self._decode_in(loader.dataset)
            self._kept_before |= loader.dataset is not self.loader.dataset
            self.loader, self.inner = loader, None
            self.stream = None if is_iterable_set(loader) else IndexStream(loader._index_sampler)
        self.undelivered.clear()
        self.delivered, self._ended, self.whole, self._length = 0, False, True, None
        if self.stream is not None:
            self.stream.begin()
        self._watch_dataset()
        waits = self.replaying or not open_now
        lives_on = not waits and self.inner is not None and self._lives_on()
        if not lives_on:
            view.end(self.inner)
            self.inner = None
        if waits:
            self.whole = not self.replaying
            if self.replaying:
                self.replay()
        elif lives_on:
            self.opened_ns, self.awaits_first = time.monotonic_ns(), True
            self.inner._reset(self._opened)
        else:
            self.open_again()

    def _decode_in(self, dataset: Any) -> None:
        """The data set was made anew, too: decode in it as the settings say."""
        self.swap = swap_for(dataset)
        if self.settings.get("decoder") == "crop":
            self.swap.put_in()

    def switch(self, settings: Mapping[str, Any]) -> None:
        """Go on with other settings; ``{}``: the script's. What was not delivered is delivered first."""
        self.replaying = False
        if settings == self.settings and self.inner is not None:
            return
        decoder = settings.get("decoder") == "crop"
        if decoder and self.swap is None:
            self.swap = swap_for(self.loader.dataset)
        self.close()
        self.settings, self.epoch_batches, self.whole = settings, None, self.delivered == 0
        self._check_lasting_workers()
        if self.swap is not None:
            (self.swap.put_in if decoder else self.swap.take_out)()
        if self._has_more():
            self.open_again()

    def _lives_on(self) -> bool:
        """Whether the workers live on from epoch to epoch."""
        return bool(getattr(self._opened, "persistent_workers", False))

    def _watch_dataset(self) -> None:
        """Note what the script has changed of the data set since the epoch before has ended."""
        before, self._dataset_state = self._dataset_state, None
        if before is not None:
            state = state_of(self.loader.dataset)
            self.renewed |= {name for name, value in state.items() if name not in before or value != before[name]}

    def _check_lasting_workers(self) -> None:
        """See :func:`pipetune.hook.lasting_workers.refuse_lasting_workers`."""
        if self.settings.get("persistent_workers"):
            refuse_lasting_workers(renewed=self.renewed, is_taken_beside=self.is_taken_beside)

    def open_again(self) -> None:
        """Make another iterator with the present settings."""
        self.opened_ns = time.monotonic_ns()
        self._opened = view.view_of(self.loader, self.settings, self.stream, self._all_cores)
        self.inner = self._original(self._opened)
        self.open_s = (time.monotonic_ns() - self.opened_ns) / 1e9
        self.awaits_first = True

    def time_starts(self, count: int) -> list[tuple[float, float]]:
        """How long the workers take to start and to end, each time (s); as often as leaves most of this epoch's batches
        to be measured, and takes no longer than :data:`_STARTS_S`.

        Args:
            count: how often at most.
        """
        workers = int(self.settings.get("num_workers", self.loader.num_workers))
        if not count or self.stream is None or 2 * count * workers > (self.length or 0) - self.delivered:
            return []
        if not self._collected:
            # As ``pipetune run`` does before the first workers (pipetune.hook.tuned): a worker that inherits a full
            # collection which is due takes 0.2 s longer with each epoch, and when one is due is chance.
            gc.collect()
            self._collected = True
        found: list[tuple[float, float]] = []
        until_s = time.monotonic() + _STARTS_S
        while len(found) < count and time.monotonic() < until_s:
            found.append(self.time_start())
        return found

    def time_start(self) -> tuple[float, float]:
        """Start the workers anew for a batch each, and end them, as an epoch does.

        The batches are delivered later. Why not to look at one start: of seven starts of a worker that took 50 ms, one
        took 200 ms.

        Returns:
            The wait for the first batch, and the wait for the end of workers that have nothing to do (s).
        """
        stream = self.stream
        assert stream is not None
        self.close()
        stream.allowed = workers = int(self.settings.get("num_workers", self.loader.num_workers))
        times = [time.monotonic_ns()]
        try:
            self.open_again()
            if self._lives_on():
                while self._one_more(stream):  # the epoch before
                    pass
                stream.allowed, times = workers, [time.monotonic_ns()]
                self.inner._reset(self._opened)
            while self._one_more(stream):
                times.append(time.monotonic_ns())
            times.append(time.monotonic_ns())
        finally:
            view.end(self.inner)
            stream.take_back()
            stream.allowed = None
            self.open_again()
        return (times[1] - times[0]) / 1e9, (times[-1] - times[-2]) / 1e9

    def _one_more(self, stream: IndexStream) -> bool:
        """Keep another batch for later; whether there was one."""
        try:
            self.undelivered.append(next(self.inner))
        except StopIteration:
            return False
        except Exception:
            stream.delivered()  # a script that catches this goes on with the next batch
            raise
        stream.delivered()
        return True

    def close(self) -> None:
        """End the iterator and its workers."""
        in_order = bool(self.settings.get("in_order", getattr(self.loader, "in_order", True)))
        if self.stream is not None and self.inner is not None and not in_order:
            self._drain(self.stream)
        view.end(self.inner)
        self.inner = None
        if self.stream is not None:
            self.stream.take_back()

    def _drain(self, stream: IndexStream) -> None:
        """Let workers whose batches come in any order finish: which of those that were begun are missing, who knows."""
        stream.allowed = 0
        with contextlib.suppress(Exception):
            while True:
                self.undelivered.append(next(self.inner))
        for _ in range(min(stream.drained(), len(self.undelivered))):
            self.undelivered.pop()

    def next(self) -> Any:
        """The next batch of the epoch.

        Raises:
            StopIteration: it has ended.
        """
        if self._ended:
            raise StopIteration
        self._check_lasting_workers()
        if not (self._leave_out() if self.replaying else self._has_more()):
            self._end_epoch()
            raise StopIteration
        if self.replaying:
            self.whole = False
            batch = self.kept.hand_out()
        elif self.undelivered:
            batch = self.undelivered.popleft()
        else:
            batch = self._load()
        self.delivered += 1
        return batch

    def put_back(self, batch: Any) -> None:
        """Go on with the script's settings: the loop gets this batch first, and not yet."""
        self.undelivered.appendleft(batch)
        self.delivered -= 1
        self.switch({})

    def _load(self) -> Any:
        if self.inner is None:
            self.open_again()
        try:
            batch = next(self.inner)
        except StopIteration:
            self._end_epoch()
            raise
        except Exception:
            if self.stream is not None:
                self.stream.delivered()  # a script that catches this goes on with the next batch
            raise
        if self.stream is not None:
            self.stream.delivered()
        if self.awaits_first:
            self.awaits_first, self.first_s = False, (time.monotonic_ns() - self.opened_ns) / 1e9
        return batch

    def _has_more(self) -> bool:
        """Whether another batch of this epoch may be loaded."""
        if self.undelivered:
            return True
        if self.stream is None:  # whose iterator knows, unless it does not go back to the epoch's beginning
            length = None if self.whole else self.length
            return length is None or self.delivered < length
        # An iterator that has ended itself waits for its workers' end, which is to be measured.
        return self.stream.has_more() or (self.inner is not None and not self.stream.leaves_out)

    def _leave_out(self) -> bool:
        """Leave out a batch of the epoch, in place of which a kept one comes; whether there is one left."""
        if self.stream is None:
            length = self.length
            return length is None or self.delivered < length
        if self.stream.leave_out():
            return True
        if self.undelivered:
            self.undelivered.pop()
            return True
        return False

    def _end_epoch(self) -> None:
        self._ended = True
        self._dataset_state = state_of(self.loader.dataset)
        if self.whole and not self.replaying:
            self.epoch_batches = self.delivered
            self._own_batches = self._own_batches if self.settings else self.delivered
        if not self._lives_on():
            view.end(self.inner)
