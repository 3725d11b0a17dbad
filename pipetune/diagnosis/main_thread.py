"""What the main thread did at each reading, as shares of activities. Pure.

What it waits for in the kernel is known at every reading and costs nothing; a stack says far more and is rare. So
stacks teach what a wait means in this job ("asleep in poll is the loader"), and every reading is judged in that light.
Where no stack has been seen, what a wait usually means stands in, and nothing is guessed where it means nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pipetune.diagnosis import causes
from pipetune.records.observation import DISK, EMULATED, LOADER_WAIT, LOCK, NETWORK, PIPE, RUNNING, SLEEP, RankReading
from pipetune.sampler.stacks import activity as act

UNKNOWN = "unknown"
#: So many stacks of one kind of reading make a rule.
_LEAST_STACKS = 2


def loses_time(reading: RankReading) -> bool:
    """Whether the accelerator lost time that a healthy job does not lose, so that a stack is worth its cost.

    ``True`` where no accelerator can be seen.
    """
    if reading.idle_now is not None:
        return reading.idle_now  # known exactly: the accelerator is idle at this moment
    return reading.busy_frac is None or 1 - reading.busy_frac > causes.HEALTHY_LOST


def shares_of_activities(
    readings: Sequence[RankReading], earlier: Sequence[RankReading] = ()
) -> list[dict[str, float]]:
    """For each reading: activity of the main thread → probability; each sums to 1.

    Args:
        readings: to be read.
        earlier: readings of the same job from before, whose stacks teach, too.
    """
    learnt: dict[_Kind, Counter[str]] = defaultdict(Counter)
    for reading in (*earlier, *readings):
        if reading.stack is not None and _tells(reading):
            learnt[_kind(reading)][reading.stack.activity] += 1
    return [_shares(reading, learnt) for reading in readings]


def independent_readings(
    readings: Sequence[RankReading], activities: Sequence[Mapping[str, float]], weights: Sequence[float]
) -> float:
    """How many independent readings the weighted shares of activities rest on: as many as equal weights give (Kish).

    A reading that found the main thread waiting for the accelerator tells nothing about the loss. A rule is worth no
    more than the stacks that it was learnt from, however many readings are judged by it.
    """
    by_kind: dict[_Kind, list[tuple[RankReading, float]]] = defaultdict(list)
    for reading, shares, weight in zip(readings, activities, weights, strict=True):
        by_kind[_kind(reading)].append((reading, weight * (1 - shares.get(act.DEVICE_WAIT, 0.0))))
    total = squares = 0.0
    for found in by_kind.values():
        stacks = [reading.stack.activity for reading, _ in found if reading.stack is not None and _tells(reading)]
        telling = sum(activity != act.DEVICE_WAIT for activity in stacks)
        whole, own = sum(weight for _, weight in found), sum(weight * weight for _, weight in found)
        total += whole
        squares += max(own, whole * whole / max(1, telling)) if len(stacks) >= _LEAST_STACKS else own
    return total * total / squares if squares > 0 else 0.0


def _tells(reading: RankReading) -> bool:
    """The reading's stack says what the reading saw.

    Code of the user's that is asleep in a pipe while loader workers are there is no Python at work: it waits for them
    in a way of its own.
    """
    waits = reading.main.wait == PIPE and bool(reading.workers) and reading.stack is not None
    own_wait = (
        waits and reading.stack is not None and reading.stack.active is False and reading.stack.activity == act.PYTHON
    )
    return _same_moment(reading) and not own_wait


def _same_moment(reading: RankReading) -> bool:
    """The stack shows what the reading saw.

    It is taken some 20 ms after the reading, and not at a random instant: on a machine without an idle core py-spy gets
    one when the main thread goes to sleep, and has started up when the thread is awake again. The kernel's word on how
    often the thread sleeps is to be trusted then, and a stack of another state says nothing about the reading.
    """
    return (
        reading.stack is None or reading.stack.active is None or reading.stack.active == (reading.main.wait == RUNNING)
    )


class _Kind(NamedTuple):
    """Readings that a stack of one of them speaks for."""

    wait: str
    writes: bool
    """The main thread writes files at a rate of its own."""
    reads: bool
    """It reads them, and there are no workers that should."""
    lost: bool
    """Time was lost. Stacks are taken in such readings only, so they say nothing about the others."""


def _kind(reading: RankReading) -> _Kind:
    least = causes.INLINE_READ_BYTES_PER_S * (reading.interval_s or 1.0)
    return _Kind(
        reading.main.wait,
        (reading.main.write_chars or 0) >= least,
        not reading.workers and (reading.main.read_chars or 0) >= least,
        loses_time(reading),
    )


def _shares(reading: RankReading, learnt: dict[_Kind, Counter[str]]) -> dict[str, float]:
    if reading.stack is not None and _tells(reading):
        return {reading.stack.activity: 1.0}
    seen = learnt.get(_kind(reading))
    if seen and seen.total() >= _LEAST_STACKS:
        return {name: count / seen.total() for name, count in seen.items()}
    return {_usual(reading): 1.0}


def _usual(reading: RankReading) -> str:
    """What the wait means most of the time, without a stack."""
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
        # Without an accelerator to be seen it may be the training itself that runs, and beside one that is busy the
        # thread may be spinning until it is done, as CUDA does.
        # or waits in this way for its turn on a device that others use.
        beside = reading.sharing is not None and bool(reading.sharing.others_frac)
        return UNKNOWN if reading.source == LOADER_WAIT or not lost or beside else act.PYTHON
    return UNKNOWN
