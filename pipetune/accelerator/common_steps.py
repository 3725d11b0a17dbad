"""Steps that the ranks of a training end together, because each step adds the gradients of all of them.

A step begins when its rank has the batch and the step before has ended everywhere. It ends when the slowest rank has
computed it. Each rank shows when it asked for a step and how long that computes; from
the same numbers every rank works out the same times, however late it wakes up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pipetune.accelerator.contract import MAX_IN_FLIGHT, Accelerator, DeviceStep
from pipetune.processes.board import Board

#: Newest steps of each rank that the others can read. No rank is further ahead of another than it may have unfinished
#: steps, and the other reads back as far at most.
_KEPT = 16
assert _KEPT > 2 * (MAX_IN_FLIGHT + 1)
#: Words of a row: whether this rank adds no more steps, how many it has added, and three numbers for each kept step.
_ENDED, _COUNT, _STEPS = 0, 1, 2
WORDS = _STEPS + 3 * _KEPT


class CommonTimes(NamedTuple):
    """When one rank's step was computed, and when it had ended on all ranks (monotonic ns)."""

    start_ns: int
    own_end_ns: int
    end_ns: int


class CommonSteps:
    """One rank's view of the steps that all ranks take together.

    Args:
        board: of the ranks.
        rank: this one.
        first_word: of :data:`WORDS` words of the board.
    """

    def __init__(self, board: Board, rank: int, first_word: int = 0) -> None:
        self._board, self._rank, self._first = board, rank, first_word
        self._added = self._read = 0
        self._before_ns = 0

    def add(self, asked_ns: int, length_ns: int, launched_ns: int = 0) -> None:
        """Show this rank's next step.

        Args:
            asked_ns: when its batch was there.
            length_ns: how long it computes, the copy included.
            launched_ns: it cannot end before.
        """
        place = self._first + _STEPS + 3 * (self._added % _KEPT)
        self._added += 1
        self._board.show(
            (place, asked_ns), (place + 1, length_ns), (place + 2, launched_ns), (self._first + _COUNT, self._added)
        )

    def end(self) -> None:
        """This rank adds no more steps, and the others need not wait for any."""
        self._board.show((self._first + _ENDED, 1))

    def is_known(self) -> bool:
        """Whether all ranks have added the oldest step whose times were not read yet."""
        return all(self._has(rank) or self._has_ended(rank) for rank in range(self._board.members))

    def wait_known(self) -> None:
        """Wait until it is."""
        self._board.wait(self.is_known)

    def read(self) -> CommonTimes:
        """The times of the oldest step that were not read yet; after :meth:`is_known`."""
        taking_part = [rank for rank in range(self._board.members) if self._has(rank)]
        times = {rank: self._times(rank) for rank in taking_part}
        end_ns = max(own_end_ns for _, own_end_ns in times.values())
        self._read += 1
        self._before_ns = end_ns
        return CommonTimes(*times[self._rank], end_ns)

    def _times(self, rank: int) -> tuple[int, int]:
        place = self._first + _STEPS + 3 * (self._read % _KEPT)
        asked_ns, length_ns, launched_ns = (self._board.seen(rank, place + number) for number in range(3))
        start_ns = max(asked_ns, self._before_ns)
        return start_ns, max(start_ns + length_ns, launched_ns)

    def _has(self, rank: int) -> bool:
        return self._board.seen(rank, self._first + _COUNT) > self._read

    def _has_ended(self, rank: int) -> bool:
        return bool(self._board.seen(rank, self._first + _ENDED)) and not self._has(rank)


def device_step(times: CommonTimes, copy_s: float | None) -> DeviceStep:
    """The step of one rank."""
    return DeviceStep(times.start_ns, times.end_ns, copy_s, (times.end_ns - times.own_end_ns) / 1e9)


class InStep:
    """A real accelerator whose steps begin when the step before has ended on all ranks.

    See :class:`pipetune.accelerator.contract.Accelerator`. The training process waits in place of the device, so that
    nothing is queued on that: the pause until a step is launched is in the ceiling, which is measured in the same way.
    What other ranks have computed may be known late, when their loops come by; that is waiting for them, too.

    Args:
        inner: the accelerator.
        common: the steps of all ranks.
        clock: monotonic nanoseconds.
    """

    def __init__(self, inner: Accelerator, common: CommonSteps, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._inner, self._common, self._clock = inner, common, clock
        self._shown: deque[DeviceStep] = deque()
        """Ended here, and not known to have ended everywhere."""
        self._ended: list[DeviceStep] = []

    def submit(self, batch: Any) -> None:
        """Wait for the step before, here and everywhere, and start the next one."""
        self._end_steps(self._clock())
        self._inner.submit(batch)
        self._show(self._inner.finished())

    def finished(self) -> list[DeviceStep]:
        """Steps that have ended on all ranks."""
        self._show(self._inner.finished())
        ended, self._ended = self._ended, []
        return ended

    def drain(self) -> list[DeviceStep]:
        """Wait for the newest step."""
        self._end_steps(None)
        return self.finished()

    def _show(self, steps: Iterable[DeviceStep]) -> None:
        for step in steps:
            self._common.add(step.t_start_ns, step.t_end_ns - step.t_start_ns)
            self._shown.append(step)

    def _end_steps(self, ready_ns: int | None) -> None:
        """Wait until all steps have ended everywhere.

        Args:
            ready_ns: when this rank had its next batch: from then on it waits for the others; ``None``: it has none.
        """
        self._show(self._inner.drain())
        while self._shown:
            known = self._common.is_known()
            self._common.wait_known()
            step, times = self._shown.popleft(), self._common.read()
            if ready_ns is not None and not known:
                waited_ns = max(0, self._clock() - max(ready_ns, times.end_ns))
                times = times._replace(end_ns=times.end_ns + waited_ns)
            self._ended.append(device_step(times, step.h2d_s))

    def warm_up(self, shape: tuple[int, ...]) -> None:
        """As the accelerator does."""
        self._inner.warm_up(shape)

    def place(self, batch: Any) -> Any:
        """As the accelerator does."""
        return self._inner.place(batch)

    def copy_rate(self, batch: Any) -> float | None:
        """As the accelerator does."""
        return self._inner.copy_rate(batch)

    def memory_bytes(self) -> int | None:
        """As the accelerator does."""
        return self._inner.memory_bytes()
