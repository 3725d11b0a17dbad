"""Where a loop's batches come from: the script's loader as it is, the same with other settings, or kept batches."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from pipetune.hook.decoder import Swap, swap_for
from pipetune.hook.guards import is_iterable_set
from pipetune.hook.kept import KeptBatches
from pipetune.hook.seams import GetIterator
from pipetune.hook.stream import IndexStream
from pipetune.usercode import loader_view as view


class Source:
    """The batches of one loader.

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
        self.endless = False
        """When the loader's batches end, another epoch begins: from when it is measured."""
        self.swap: Swap | None = None
        """Another decoder, once one was asked for and compared."""
        self.undelivered: deque[Any] = deque()
        """Batches of an iterator that was ended, which come first."""
        self.epoch_batches: int | None = None
        """Batches of an epoch with the present settings, once one has ended; of a data set that has no indices."""
        self._batches = 0
        """Of this epoch."""
        self.replaying = False
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

    def reset(self) -> None:
        """Another epoch of a loader whose workers live on."""
        self.inner._reset(self.loader)

    def go_on(self) -> None:
        """From now on no epoch ends."""
        self.endless = True
        if self.stream is not None:
            self.stream.endless = True

    def switch(self, settings: Mapping[str, Any]) -> None:
        """Go on with other settings; ``{}``: the script's. What was not delivered is delivered first."""
        self.replaying = False
        if settings == self.settings and self.inner is not None:
            return
        decoder = settings.get("decoder") == "crop"
        if decoder and self.swap is None:
            self.swap = swap_for(self.loader.dataset)
        self.close()
        self.settings, self.epoch_batches = settings, None
        if self.swap is not None:
            (self.swap.put_in if decoder else self.swap.take_out)()
        self.open_again()

    def open_again(self) -> None:
        """Make another iterator with the present settings."""
        self.opened_ns, self._batches = time.monotonic_ns(), 0
        self.inner = self._original(view.view_of(self.loader, self.settings, self.stream, self._all_cores))
        self.open_s = (time.monotonic_ns() - self.opened_ns) / 1e9
        self.awaits_first = True

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
        stream.allowed = int(self.settings.get("num_workers", self.loader.num_workers))
        times = [time.monotonic_ns()]
        try:
            self.open_again()
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
        stream.drained()

    def next(self) -> Any:
        """The next batch. An iterator that has ended is followed by another one where the epoch is not to end."""
        if self.replaying:
            return self.kept.hand_out()
        if self.undelivered:
            return self.undelivered.popleft()
        try:
            batch = next(self.inner)
        except StopIteration:
            if not self.endless:
                raise
            self.epoch_batches = self._batches
            self.close()
            self.open_again()
            batch = next(self.inner)
        except Exception:
            if self.stream is not None:
                self.stream.delivered()  # a script that catches this goes on with the next batch
            raise
        self._batches += 1
        if self.stream is not None:
            self.stream.delivered()
        if self.awaits_first:
            self.awaits_first = False
            self.first_s = (time.monotonic_ns() - self.opened_ns) / 1e9
        return batch


def gradients_enabled() -> bool:
    """Whether torch records gradients at this moment, as a training loop has it."""
    return bool(sys.modules["torch"].is_grad_enabled())
