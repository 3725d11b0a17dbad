"""What the main thread did at each reading, as shares of activities. Pure.

What the main thread waits for in the kernel is known at every reading and costs nothing; a stack says far more, but is
rare. So the stacks of a job show what a wait means in it ("asleep in poll" is the loader), and readings without a stack
are interpreted by that. Without any stack a wait has its usual meaning, or is ``unknown`` where it has none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pipetune.diagnosis import causes
from pipetune.records.observation import (
    DISK,
    EMULATED,
    LOADER_WAIT,
    LOCK,
    NETWORK,
    PIPE,
    RUNNING,
    SLEEP,
    RankReading,
    StackSample,
)
from pipetune.sampler.stacks import activity as act

UNKNOWN = "unknown"
#: From so many stacks of one kind of reading on, they decide what all readings of that kind mean.
_MIN_STACKS = 2


def loses_time(reading: RankReading) -> bool:
    """Whether the accelerator loses more time than in a healthy job, so that a stack is worth its cost.

    ``True`` where no accelerator can be read.
    """
    if reading.idle_now is not None:
        return reading.idle_now  # known exactly: the accelerator is idle at this moment
    return reading.busy_frac is None or 1 - reading.busy_frac > causes.HEALTHY_LOST


def shares_of_activities(
    readings: Sequence[RankReading], earlier: Sequence[RankReading] = ()
) -> list[dict[str, float]]:
    """For each reading: activity of the main thread → probability; each sums to 1.

    Args:
        readings: to be interpreted.
        earlier: readings of the same job from before; their stacks are used, too.
    """
    learnt: dict[_Kind, Counter[str]] = defaultdict(Counter)
    for reading in (*earlier, *readings):
        if reading.stack is not None and _is_usable(reading):
            learnt[_kind(reading)][_shown(reading.stack, reading)] += 1
    return [_shares(reading, learnt) for reading in readings]


def independent_readings(
    readings: Sequence[RankReading], activities: Sequence[Mapping[str, float]], weights: Sequence[float]
) -> float:
    """Effective number of independent readings (Kish) that the weighted shares of activities are estimated from.

    A reading in which the main thread waited for the accelerator has no information about the loss. Readings that were
    interpreted by stacks count as no more than the number of those stacks.
    """
    by_kind: dict[_Kind, list[tuple[RankReading, float]]] = defaultdict(list)
    for reading, shares, weight in zip(readings, activities, weights, strict=True):
        by_kind[_kind(reading)].append((reading, weight * (1 - shares.get(act.DEVICE_WAIT, 0.0))))
    total = squares = 0.0
    for found in by_kind.values():
        stacks = [reading.stack.activity for reading, _ in found if reading.stack is not None and _is_usable(reading)]
        informative = sum(activity != act.DEVICE_WAIT for activity in stacks)
        whole, own = sum(weight for _, weight in found), sum(weight * weight for _, weight in found)
        total += whole
        squares += max(own, whole * whole / max(1, informative)) if len(stacks) >= _MIN_STACKS else own
    return total * total / squares if squares > 0 else 0.0


def _is_usable(reading: RankReading) -> bool:
    """Whether the stack shows what the main thread did at the moment of the reading.

    The user's own code asleep in a pipe, beside loader workers, is not Python at work: it waits for the workers without
    torch's loader.
    """
    waits = reading.main.wait == PIPE and bool(reading.workers) and reading.stack is not None
    own_wait = (
        waits and reading.stack is not None and reading.stack.active is False and reading.stack.activity == act.PYTHON
    )
    return _agrees(reading) and not own_wait


def _agrees(reading: RankReading) -> bool:
    """Whether stack and reading found the thread in the same state: on a core, or asleep.

    The stack is taken some 20 ms later, and not at a random instant: on a machine without an idle core, py-spy gets one
    when the main thread goes to sleep, and by the time it has started the thread is awake again. How often the thread
    sleeps is then known from the readings, and a stack in another state does not belong to the reading.
    """
    return (
        reading.stack is None or reading.stack.active is None or reading.stack.active == (reading.main.wait == RUNNING)
    )


class _Kind(NamedTuple):
    """What readings have in common that are interpreted alike: a stack of one counts for all."""

    wait: str
    writes: bool
    """The main thread writes to files."""
    reads: bool
    """The main thread reads files, in a job without loader workers."""
    lost: bool
    """Time was lost. Stacks are taken in such readings only, and count for no others."""


def _kind(reading: RankReading) -> _Kind:
    minimum = causes.INLINE_READ_BYTES_PER_S * (reading.interval_s or 1.0)
    return _Kind(
        reading.main.wait,
        (reading.main.write_chars or 0) >= minimum,
        not reading.workers and (reading.main.read_chars or 0) >= minimum,
        loses_time(reading),
    )


def _shown(stack: StackSample, reading: RankReading) -> str:
    """What a stack shows that belongs to its reading.

    Where no accelerator can be seen, nothing else shows what is its work.
    The script's own lines on a core are its own Python while they hold the interpreter's lock; without it they are
    within a call that may just as well be a step, and asleep they may wait for a device that is not known.
    """
    if reading.source != LOADER_WAIT:
        return stack.activity
    if stack.unseen is not None:
        return stack.unseen
    on_core = reading.main.wait == RUNNING and stack.active is not False
    if stack.activity == act.PYTHON and not (on_core and stack.in_python is not False):
        return UNKNOWN
    return stack.activity


def _shares(reading: RankReading, learnt: dict[_Kind, Counter[str]]) -> dict[str, float]:
    if reading.stack is not None and _is_usable(reading):
        return {_shown(reading.stack, reading): 1.0}
    seen = learnt.get(_kind(reading))
    if seen and seen.total() >= _MIN_STACKS:
        return {name: count / seen.total() for name, count in seen.items()}
    return {_usual(reading): 1.0}


def _usual(reading: RankReading) -> str:
    """The usual meaning of the wait, without a stack."""
    wait, writes, reads, lost = _kind(reading)
    if wait == PIPE and reading.worker_kind == "process":
        return act.LOADER
    if wait == LOCK and (reading.pin is not None or reading.worker_kind == "thread"):
        return act.LOADER
    if wait == SLEEP and reading.source == EMULATED:
        return act.DEVICE_WAIT
    if wait == DISK:
        return act.CHECKPOINT if writes else act.LOADER_INLINE if reads else UNKNOWN
    if wait == NETWORK:
        return UNKNOWN
    if wait == RUNNING or reading.main.cpu_frac > 0.5:
        if writes:
            return act.CHECKPOINT
        if reads:
            return act.LOADER_INLINE
        # Where no accelerator can be read, this may be the training itself; where one is busy, CUDA may be spinning
        # until it is done; on a device that others use, until it is this process's turn.
        beside = reading.sharing is not None and bool(reading.sharing.others_frac)
        return UNKNOWN if reading.source == LOADER_WAIT or not lost or beside else act.PYTHON
    return UNKNOWN
