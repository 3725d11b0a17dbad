"""What the main thread did at each look, as shares of activities. Pure.

What it waits for in the kernel is known at every look and costs nothing; a stack says far more and is rare. So stacks
teach what a wait means in this job ("asleep in poll is the loader"), and every look is read in that light. Where no
stack has been seen, what a wait usually means stands in, and nothing is guessed where it means nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pipetune.diagnosis import causes
from pipetune.records.watch import DISK, EMULATED, LOADER_WAIT, LOCK, NETWORK, PIPE, RUNNING, SLEEP, RankLook
from pipetune.sampler.stacks import activity as act

UNKNOWN = "unknown"
#: So many stacks of one kind of look make a rule.
_LEAST_STACKS = 2


def loses_time(look: RankLook) -> bool:
    """Whether the accelerator lost time that a healthy job does not lose, so that a stack is worth its cost.

    ``True`` where no accelerator can be seen.
    """
    if look.idle_now is not None:
        return look.idle_now  # known exactly: the accelerator is idle at this moment
    return look.busy_frac is None or 1 - look.busy_frac > causes.HEALTHY_LOST


def shares_of_activities(looks: Sequence[RankLook], earlier: Sequence[RankLook] = ()) -> list[dict[str, float]]:
    """For each look: activity of the main thread → probability; each sums to 1.

    Args:
        looks: to be read.
        earlier: looks of the same job from before, whose stacks teach, too.
    """
    learnt: dict[_Kind, Counter[str]] = defaultdict(Counter)
    for look in (*earlier, *looks):
        if look.stack is not None and _tells(look):
            learnt[_kind(look)][look.stack.activity] += 1
    return [_shares(look, learnt) for look in looks]


def independent_looks(
    looks: Sequence[RankLook], activities: Sequence[Mapping[str, float]], weights: Sequence[float]
) -> float:
    """How many independent looks the weighted shares of activities rest on: as many as equal weights would be (Kish).

    A look that found the main thread waiting for the accelerator tells nothing about the loss. A rule is worth no more
    than the stacks that it was learnt from, however many looks are read by it.
    """
    by_kind: dict[_Kind, list[tuple[RankLook, float]]] = defaultdict(list)
    for look, shares, weight in zip(looks, activities, weights, strict=True):
        by_kind[_kind(look)].append((look, weight * (1 - shares.get(act.DEVICE_WAIT, 0.0))))
    total = squares = 0.0
    for found in by_kind.values():
        stacks = [look.stack.activity for look, _ in found if look.stack is not None and _tells(look)]
        telling = sum(activity != act.DEVICE_WAIT for activity in stacks)
        whole, own = sum(weight for _, weight in found), sum(weight * weight for _, weight in found)
        total += whole
        squares += max(own, whole * whole / max(1, telling)) if len(stacks) >= _LEAST_STACKS else own
    return total * total / squares if squares > 0 else 0.0


def _tells(look: RankLook) -> bool:
    """The look's stack says what the look saw.

    Code of the user's that is asleep in a pipe while loader workers are there is no Python at work: it waits for them
    in a way of its own.
    """
    waits = look.main.wait == PIPE and bool(look.workers) and look.stack is not None
    own_wait = waits and look.stack is not None and look.stack.active is False and look.stack.activity == act.PYTHON
    return _same_moment(look) and not own_wait


def _same_moment(look: RankLook) -> bool:
    """The stack shows what the look saw.

    It is taken some 20 ms after the look, and not at a random instant: on a machine without an idle core py-spy gets
    one when the main thread goes to sleep, and has started up when the thread is awake again. The kernel's word on how
    often the thread sleeps is to be trusted then, and a stack of another state says nothing about the look.
    """
    return look.stack is None or look.stack.active is None or look.stack.active == (look.main.wait == RUNNING)


class _Kind(NamedTuple):
    """Looks that a stack of one of them speaks for."""

    wait: str
    writes: bool
    """The main thread writes files at a rate of its own."""
    reads: bool
    """It reads them, and there are no workers that should."""
    lost: bool
    """Time was lost. Stacks are taken in such looks only, so they say nothing about the others."""


def _kind(look: RankLook) -> _Kind:
    least = causes.INLINE_READ_BYTES_PER_S * (look.interval_s or 1.0)
    return _Kind(
        look.main.wait,
        (look.main.write_chars or 0) >= least,
        not look.workers and (look.main.read_chars or 0) >= least,
        loses_time(look),
    )


def _shares(look: RankLook, learnt: dict[_Kind, Counter[str]]) -> dict[str, float]:
    if look.stack is not None and _tells(look):
        return {look.stack.activity: 1.0}
    seen = learnt.get(_kind(look))
    if seen and seen.total() >= _LEAST_STACKS:
        return {name: count / seen.total() for name, count in seen.items()}
    return {_usual(look): 1.0}


def _usual(look: RankLook) -> str:
    """What the wait means most of the time, without a stack."""
    wait, writes, reads, lost = _kind(look)
    if wait == PIPE and look.worker_kind == "process":
        return act.LOADER
    if wait == LOCK and (look.pin is not None or look.worker_kind == "thread"):
        return act.LOADER
    if wait == SLEEP and look.source == EMULATED:
        return act.DEVICE_WAIT
    if wait == DISK:
        return act.CHECKPOINT if writes else act.LOADER_INLINE if reads else UNKNOWN
    if wait == NETWORK:
        return UNKNOWN
    if wait == RUNNING or look.main.cpu_frac > 0.5:
        if writes:
            return act.CHECKPOINT
        if reads:
            return act.LOADER_INLINE
        # Without an accelerator to be seen it may be the training itself that runs, and beside one that is busy the
        # thread may be spinning until it is done, as CUDA does.
        return UNKNOWN if look.source == LOADER_WAIT or not lost else act.PYTHON
    return UNKNOWN
