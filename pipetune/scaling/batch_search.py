"""Measures one batch size after the other until the largest and the knee are known, or it is asked to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pipetune.processes.signals import raise_if_lost
from pipetune.records.batch_size import BatchPoint
from pipetune.scaling.batch_size import Line, next_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of one batch size."""

    point: BatchPoint
    precision: str | None = None
    """In which it computed; ``None``: it failed."""
    notes: tuple[str, ...] = ()
    stopped: KeyboardInterrupt | None = None
    """We were asked to stop while the process, which had its result, came to its end."""


@dataclass(slots=True, kw_only=True)
class BatchSearch:
    """What was measured so far.

    Args:
        on_point: is told what was measured.
        on_next: is told which batch size will be.
        on_stop: is told that it was asked to stop; what is known then is kept.
    """

    on_point: Callable[[BatchPoint], None]
    on_next: Callable[[int], None]
    on_stop: Callable[[KeyboardInterrupt], None]
    found: list[Measured] = field(default_factory=list)
    stopped: KeyboardInterrupt | None = None
    _remarks: list[str] = field(default_factory=list)

    @property
    def points(self) -> tuple[BatchPoint, ...]:
        """In the order of measurement."""
        return tuple(one.point for one in self.found)

    @property
    def failed(self) -> str | None:
        """Why a batch size was not measured, other than for want of memory."""
        return next((point.failure for point in self.points if point.failure and not point.out_of_memory), None)

    def run(
        self, measure: Callable[[int], Measured], predicted: Line, limit_bytes: float, *, since: int = 0,
        reach: float = math.inf,
    ) -> None:  # fmt: skip
        """Measure what :func:`next_batch` asks for.

        Args:
            since: so many of those that were measured are of another kind of training step.
            reach: see :func:`next_batch`.

        Raises:
            KeyboardInterrupt: asked to stop before anything was measured.
        """
        self._until_stopped(lambda: next_batch(self.points[since:], predicted, limit_bytes, reach), measure)

    def run_sizes(self, measure: Callable[[int], Measured], sizes: tuple[int, ...]) -> None:
        """Measure these batch sizes, in their order, until one fails; raises as :meth:`run`."""
        rest = iter(dict.fromkeys(sizes))
        self._until_stopped(lambda: None if self.points and self.points[-1].failure else next(rest, None), measure)

    def confirm(self, size: int, measure: Callable[[int], Measured]) -> None:
        """Measure one once more; raises as :meth:`run`.

        It takes the place of the first time, unless it failed for another reason than memory, which is noted.
        """
        rest = iter((size,))
        before = len(self.found)
        self._until_stopped(lambda: next(rest, None), measure)
        if len(self.found) == before:
            return
        again = self.found.pop()
        if again.point.failure and not again.point.out_of_memory:
            self.remark(f"batches of {size} were not measured once more: {again.point.failure}")
            return
        others = [one for one in self.found if one.point.batch_size != size]
        self.found = [*others, again]

    @property
    def notes(self) -> tuple[str, ...]:
        """Each once, in the order of measurement."""
        return tuple(dict.fromkeys((*(note for one in self.found for note in one.notes), *self._remarks)))

    def remark(self, note: str) -> None:
        """Add a note."""
        self._remarks.append(note)

    def stop(self, asked: KeyboardInterrupt | None) -> None:
        """It was asked to stop, and measures nothing more; ``None``: it was not."""
        if asked is not None and self.stopped is None:
            self.stopped = asked
            self.on_stop(asked)

    def _until_stopped(self, following: Callable[[], int | None], measure: Callable[[int], Measured]) -> None:
        if self.stopped is not None:
            return
        try:
            while (size := following()) is not None:
                raise_if_lost()
                self.on_next(size)
                self.found.append(measure(size))
                self.on_point(self.found[-1].point)
                if (stopped := self.found[-1].stopped) is not None:
                    raise stopped
        except KeyboardInterrupt as asked:
            if not self.found:
                raise
            self.stop(asked)
