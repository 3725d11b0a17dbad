"""How much of a rank's time is lost, and how the loss divides among causes. Pure.

The loss is the accelerator's idle time, plus the unused part of the time in which it ran less than half filled; where
no accelerator can be seen, the time in which the main thread does what is certainly no training step. Idle time is
attributed to what the main thread did at that time; where it waited for the loader, to what the loader workers did.
Waiting for the accelerator cannot be the cause of its idle time and is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipetune.diagnosis import causes
from pipetune.diagnosis.loader_time import parts_of, split_loader_time
from pipetune.diagnosis.main_thread import UNKNOWN, independent_readings, shares_of_activities
from pipetune.diagnosis.own_threads import with_own_threads
from pipetune.records.observation import LOADER_WAIT, RankReading
from pipetune.records.watch import CauseShare
from pipetune.sampler.stacks import activity as act
from pipetune.stats.intervals import share_interval, wilson

_LOADER = (act.LOADER, act.LOADER_START)
#: Activities of the main thread that count as lost time where no accelerator can be read, those of them that pause
#: the training for long, and those that are known to be the accelerator's work. What else it does may be either.
LOST_UNSEEN = (*_LOADER, act.LOADER_INLINE, act.CHECKPOINT, act.COMMUNICATION, act.PYTHON)
PAUSES_UNSEEN = (*_LOADER, act.LOADER_INLINE, act.CHECKPOINT)
_WORK_UNSEEN = (act.MODEL, act.DEVICE_WAIT)
#: At least so many readings must be known to fall into idle time; otherwise all readings with a loss are used.
_MIN_IDLE_READINGS = 6
#: Waits for the accelerator while it works for others: what it did not do for this job meanwhile is theirs.
_TURN = "waits for its turn on the accelerator"
_CAUSE_OF = {
    act.LOADER_INLINE: causes.NO_WORKERS,
    act.LOADER_START: causes.WORKER_START,
    act.COPY: causes.H2D_COPY,
    act.COMMUNICATION: causes.COMMUNICATION,
    act.CHECKPOINT: causes.CHECKPOINT,
    act.MODEL: causes.SMALL_BATCH,
    act.PYTHON: causes.MAIN_PYTHON,
    act.IMPORT: causes.MAIN_PYTHON,
    UNKNOWN: causes.UNDETERMINED,
    _TURN: causes.SHARED,
}
#: Of a share in the binomial variance, which goes to 0 near 1.
_MAX_SHARE = 0.8
#: A smaller share of the loss is not named.
_NEGLIGIBLE = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The lost time of one rank in a window."""

    source: str
    seconds: float
    util_frac: float | None
    idle_frac: float
    """Share of the time in which the accelerator was idle; where none can be read, in which the main thread did what is
    no training step."""
    idle_ci95: tuple[float, float]
    unfilled_frac: float
    """Share of the time that is lost because it ran less than half filled."""
    shares: dict[str, float]
    """Cause → share of the loss, largest first; they sum to 1."""
    readings: float
    """Number of independent readings that the shares are estimated from."""
    activities: dict[str, float]
    """What the main thread did → share of the time."""
    proven: bool
    """The loss exceeds a healthy job's at 95 %; always true where the accelerator itself is read."""

    @property
    def lost_frac(self) -> float:
        """Share of the time that is lost: idle and unfilled time together."""
        return min(1.0, self.idle_frac + self.unfilled_frac)

    @property
    def unclear_frac(self) -> float:
        """Share of the time that is neither lost nor known to be the accelerator's work, where none can be read."""
        work = sum(self.activities.get(name, 0.0) for name in _WORK_UNSEEN)
        return max(0.0, 1 - self.lost_frac - work) if self.source == LOADER_WAIT else 0.0

    @property
    def lost_ci95(self) -> tuple[float, float]:
        """95 % interval of :attr:`lost_frac`."""
        low, high = self.idle_ci95
        return min(self.lost_frac, low + self.unfilled_frac), min(1.0, high + self.unfilled_frac)

    def cause_shares(self) -> tuple[CauseShare, ...]:
        """The shares with their 95 % intervals."""
        return tuple(
            CauseShare(cause=cause, share=share, ci95=wilson(share, self.readings))
            for cause, share in self.shares.items()
        )


def attribute_loss(
    readings: Sequence[RankReading],
    *,
    received_per_s: float | None = None,
    worker_stacks: Mapping[str, int] | None = None,
    earlier: Sequence[RankReading] = (),
) -> Loss:
    """Divide the lost time of one rank.

    Args:
        readings: in the order of time, at least one, each covering some time.
        received_per_s: bytes per second from the network.
        worker_stacks: activity of the loader workers, by their stacks → number of stacks.
        earlier: readings of the same rank from before this window; their stacks show what a wait means.
    """
    source = max((reading.source for reading in readings), key=[reading.source for reading in readings].count)
    if source != LOADER_WAIT:
        readings = [reading for reading in readings if reading.busy_frac is not None] or readings
    activities = _with_turns(readings, shares_of_activities(readings, earlier))
    seconds = sum(reading.interval_s for reading in readings)
    idle = _idle_fracs(readings, activities, source)
    weights, main, count = _main(readings, activities, idle, source)
    shares = _causes(readings, activities, weights, main, received_per_s, worker_stacks)
    idle_frac = _mean(idle, readings)
    unfilled_frac = _unfilled(readings)
    lost = idle_frac + unfilled_frac
    if lost > 0:
        shares = {cause: share * idle_frac / lost for cause, share in shares.items() if idle_frac}
        if unfilled_frac:
            shares[causes.SMALL_BATCH] = shares.get(causes.SMALL_BATCH, 0.0) + unfilled_frac / lost
    done: dict[str, float] = defaultdict(float)
    for reading, shares_now in zip(readings, activities, strict=True):
        for name, share in shares_now.items():
            done[name] += share * reading.interval_s / seconds
    return Loss(
        source=source,
        seconds=seconds,
        util_frac=None if source == LOADER_WAIT else 1 - idle_frac,
        idle_frac=idle_frac,
        idle_ci95=wilson(idle_frac, len(readings)) if source == LOADER_WAIT else share_interval(idle, idle_frac),
        unfilled_frac=unfilled_frac,
        shares=dict(sorted(shares.items(), key=lambda item: -item[1])),
        readings=count if unfilled_frac < idle_frac else len(readings),
        activities=dict(sorted(done.items(), key=lambda item: -item[1])),
        proven=source != LOADER_WAIT or is_proven(min(1.0, lost), len(readings)),
    )


def _with_turns(readings: Sequence[RankReading], activities: list[dict[str, float]]) -> list[dict[str, float]]:
    return [
        {_TURN if name == act.DEVICE_WAIT else name: share for name, share in shares.items()}
        if reading.sharing is not None and (reading.sharing.others_frac or 0.0) >= causes.SHARED_FRAC
        else shares
        for reading, shares in zip(readings, activities, strict=True)
    ]


def headline(shares: Mapping[str, float]) -> str:
    """The known cause with the largest share; ``undetermined`` if that is too small or too much of the loss is unknown.

    Args:
        shares: cause → share of the loss.
    """
    known = {cause: share for cause, share in shares.items() if cause != causes.UNDETERMINED}
    top = max(known, key=lambda cause: known[cause], default=causes.UNDETERMINED)
    unknown = shares.get(causes.UNDETERMINED, 0.0)
    clear = known.get(top, 0.0) >= causes.MIN_HEADLINE and unknown <= causes.MAX_UNDETERMINED
    return top if clear else causes.UNDETERMINED


def is_proven(lost_frac: float, readings: float) -> bool:
    """Whether a loss sampled in this many readings of the main thread exceeds a healthy job's at 95 %.

    Not needed where the accelerator itself is read: its idle time is counted, not sampled.
    """
    return wilson(lost_frac, readings)[0] >= causes.HEALTHY_LOST


def _idle_fracs(readings: Sequence[RankReading], activities: Sequence[Mapping[str, float]], source: str) -> list[float]:
    if source != LOADER_WAIT:
        return [1 - (reading.busy_frac or 0.0) for reading in readings]
    return [sum(shares.get(name, 0.0) for name in LOST_UNSEEN) for shares in activities]


class _Main(NamedTuple):
    """What the main thread did while time was lost, without its waits for the accelerator."""

    weights: list[float]
    """Seconds of lost time that each reading stands for."""
    shares: dict[str, float]
    """Activity → share of the loss."""
    readings: float
    """Number of independent readings that the shares are estimated from."""


def _main(
    readings: Sequence[RankReading], activities: Sequence[Mapping[str, float]], idle: Sequence[float], source: str
) -> _Main:
    spans = [reading.interval_s for reading in readings]
    if source == LOADER_WAIT:
        weights = [share * span for share, span in zip(idle, spans, strict=True)]
        only = [{name: share for name, share in shares.items() if name in LOST_UNSEEN} for shares in activities]
        return _Main(weights, _weighted(only, spans), independent_readings(readings, activities, weights))
    if sum(reading.idle_now is True for reading in readings) >= _MIN_IDLE_READINGS:
        # Each reading knows whether the accelerator was idle at its instant: only the idle ones count.
        weights = [reading.interval_s if reading.idle_now else 0.0 for reading in readings]
    else:
        # A reading's instant is the end of one interval and the start of the next, so it stands for half of each. After
        # an interval with next to no loss no stack is taken, so such a reading is left out.
        weights = [
            span * (share + after) / 2 if share > causes.HEALTHY_LOST else 0.0
            for span, share, after in zip(spans, idle, [*idle[1:], idle[-1]], strict=True)
        ]
    main, count = _weighted(activities, weights), independent_readings(readings, activities, weights)
    # What the main thread does at an idle moment is not always the reason for it. Within one step the accelerator may
    # still work off its queue while the loop already waits for the next batch, and be idle while the loop prepares the
    # batch that came late: in time, that Python would have run beside the step before. So the loader's share is at
    # least time waited / time lost, counted in readings with a loss only, since a checkpoint is not the loader's.
    lossy = [span if share > causes.HEALTHY_LOST else 0.0 for span, share in zip(spans, idle, strict=True)]
    waited = _weighted_sum(activities, lossy, _LOADER)
    lost = sum(share * span for share, span in zip(idle, lossy, strict=True))
    explained = min(1.0, waited / lost) if lost > 0 else 0.0
    lost = lost / sum(lossy) if lost > 0 else 0.0
    loader = sum(main.get(name, 0.0) for name in _LOADER)
    if loader and explained > loader:
        rest = 1 - loader
        main = {
            name: share * (explained / loader if name in _LOADER else (1 - explained) / rest)
            for name, share in main.items()
        }
        count = min(count, _readings_of_ratio(len(readings), explained, lost))
    return _Main(weights, main, count)


def _readings_of_ratio(readings: int, share: float, lost: float) -> float:
    """Number of readings with which a binomial share is as uncertain as one computed as time waited / time lost."""
    share = min(share, _MAX_SHARE)
    return readings * lost * (1 - share) / (1 - share * lost)


def _causes(
    readings: Sequence[RankReading],
    activities: Sequence[Mapping[str, float]],
    weights: Sequence[float],
    main: Mapping[str, float],
    received_per_s: float | None,
    worker_stacks: Mapping[str, int] | None,
) -> dict[str, float]:
    shares: dict[str, float] = defaultdict(float)
    for name, share in main.items():
        if name == act.LOADER:
            for cause, part in _loader_causes(readings, activities, weights, received_per_s, worker_stacks).items():
                shares[cause] += share * part
        elif name in (act.PYTHON, act.IMPORT, act.LOADER_INLINE, act.MODEL):
            starved = _starved(readings, weights)
            shares[causes.CPU_STARVED] += share * starved
            shares[_CAUSE_OF[name]] += share * (1 - starved)
        else:
            shares[_CAUSE_OF.get(name, causes.UNDETERMINED)] += share
    if not shares:
        shares[causes.UNDETERMINED] = 1.0
    named = {cause: share for cause, share in shares.items() if share > _NEGLIGIBLE}
    whole = sum(named.values())
    return {cause: share / whole for cause, share in named.items()}


def _loader_causes(
    readings: Sequence[RankReading],
    activities: Sequence[Mapping[str, float]],
    weights: Sequence[float],
    received_per_s: float | None,
    worker_stacks: Mapping[str, int] | None,
) -> dict[str, float]:
    waits = [weight * shares.get(act.LOADER, 0.0) for weight, shares in zip(weights, activities, strict=True)]
    known = with_own_threads(readings)
    chosen = [(reading, wait) for reading, wait in zip(known, waits, strict=True) if reading.workers and wait > 0]
    # Readings without workers in a job that has some: between two epochs that each start their own.
    absent = causes.WORKER_START if any(reading.workers for reading in readings) else causes.UNDETERMINED
    if not chosen:
        return {absent: 1.0}
    # Which of its own threads compute is known some seconds later only.
    there = 1.0 if known is not readings else sum(wait for _, wait in chosen) / sum(waits)
    split = split_loader_time(
        [reading for reading, _ in chosen],
        [wait for _, wait in chosen],
        received_per_s=received_per_s,
        worker_stacks=worker_stacks,
    )
    shares = {cause: there * share for cause, share in split.items()}
    shares[absent] = shares.get(absent, 0.0) + 1 - there
    return shares


def _starved(readings: Sequence[RankReading], weights: Sequence[float]) -> float:
    """Share of the time in which the main thread was ready to run, but waited for a core."""
    on = waiting = 0.0
    for reading, weight in zip(readings, weights, strict=True):
        cpu, delay, _ = parts_of(reading.main)
        on, waiting = on + weight * cpu, waiting + weight * delay
    return waiting / (on + waiting) if on + waiting > 0 else 0.0


def _unfilled(readings: Sequence[RankReading]) -> float:
    pairs = [
        (reading.busy_frac, reading.active_frac, reading.interval_s)
        for reading in readings
        if reading.busy_frac is not None and reading.active_frac is not None
    ]
    seconds = sum(span for _, _, span in pairs)
    if not pairs or seconds <= 0:
        return 0.0
    busy = sum(value * span for value, _, span in pairs) / seconds
    active = sum(value * span for _, value, span in pairs) / seconds
    return max(0.0, busy - active) if active < causes.UNDERFILLED * busy else 0.0


def _weighted(activities: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for shares, weight in zip(activities, weights, strict=True):
        for name, share in shares.items():
            if name != act.DEVICE_WAIT:
                total[name] += weight * share
    whole = sum(total.values())
    return {name: value / whole for name, value in total.items()} if whole > 0 else {}


def _weighted_sum(activities: Sequence[Mapping[str, float]], weights: Sequence[float], names: Sequence[str]) -> float:
    return sum(
        weight * sum(shares.get(name, 0.0) for name in names)
        for shares, weight in zip(activities, weights, strict=True)
    )


def _mean(values: Sequence[float], readings: Sequence[RankReading]) -> float:
    seconds = sum(reading.interval_s for reading in readings)
    return (
        sum(value * reading.interval_s for value, reading in zip(values, readings, strict=True)) / seconds
        if seconds
        else 0.0
    )
