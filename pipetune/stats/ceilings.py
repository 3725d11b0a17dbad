"""Ceilings that a candidate has proven wrong, and shares that are never above 1. Pure.

The max ingestion rate bounds every rate. A candidate that is faster by more than its own interval shows that the
machine was slow while the ceiling was measured. The ceiling is then measured again, and what was stated against the
wrong one is stated against the higher of the two. Rates above the ceiling that chance explains count as all of it.
The ceiling that a sweep states is then the higher one as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pipetune.records.sweep import Measurement, Outcome, RankShare
from pipetune.stats.intervals import Interval, ratio_interval


def is_refuted(ceiling: Measurement, by: Measurement) -> bool:
    """Whether a candidate was faster than its ceiling by more than the interval of its own rate.

    Of several ranks one is enough: each has a ceiling of its own, and the relative interval of all of them together.
    """
    if _steady_low(by) > ceiling.samples_per_s:
        return True
    low = by.ci95[0] / by.samples_per_s
    alone = {share.rank: share.samples_per_s for share in ceiling.ranks}
    return any(low * share.samples_per_s > alone.get(share.rank, float("inf")) for share in by.ranks)


def _steady_low(m: Measurement) -> float:
    """The lower end of the rate's interval; within epochs, where workers start anew with each."""
    steady = m.samples_per_s if m.steady_samples_per_s is None else m.steady_samples_per_s
    return steady * m.ci95[0] / m.samples_per_s


def restate(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes whose shares are of a ceiling that no candidate has refuted, as far as one was measured again.

    Of a refuted ceiling and the one that was measured again, the lower one is left out.

    Args:
        outcomes: of a sweep, in the order of measurement, the ceilings among them.
    """
    return _follow(outcomes).outcomes


def find_refuting(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The candidate that refutes the newest ceiling, which was not measured again since; ``None``: there is none."""
    followed = _follow(outcomes)
    return _refuting(followed.ceiling, [followed.outcomes[place] for place in followed.stated])


def count_repeats(outcomes: Sequence[Outcome]) -> int:
    """How many ceilings were measured again because a candidate had refuted the one before."""
    return _follow(outcomes).repeats


@dataclass(slots=True)
class _Followed:
    """A sweep's outcomes as far as they were read."""

    outcomes: list[Outcome] = field(default_factory=list)
    ceiling: Measurement | None = None
    """That the next candidates are stated against."""
    stated: list[int] = field(default_factory=list)
    """Places of the candidates that are stated against it, and were not answered by a repeated ceiling."""
    repeats: int = 0


def _follow(outcomes: Sequence[Outcome]) -> _Followed:
    followed = _Followed()
    for outcome in outcomes:
        if outcome.is_ceiling and outcome.measurement is not None:
            _take_ceiling(followed, outcome, outcome.measurement)
        else:
            followed.outcomes.append(outcome)
            if outcome.role != "ceiling":
                followed.stated.append(len(followed.outcomes) - 1)
    return followed


def _take_ceiling(followed: _Followed, outcome: Outcome, new: Measurement) -> None:
    before = followed.ceiling
    if before is None or _refuting(before, [followed.outcomes[place] for place in followed.stated]) is None:
        followed.outcomes.append(outcome)
        followed.ceiling, followed.stated = new, []
        return
    followed.repeats += 1
    if new.samples_per_s <= before.samples_per_s:
        followed.stated = []  # the repeat has confirmed the ceiling
        return
    for place in followed.stated:
        followed.outcomes[place] = _at_ceiling(followed.outcomes[place], new)
    refuted = next(
        place for place in reversed(range(len(followed.outcomes))) if followed.outcomes[place].measurement is before
    )
    followed.outcomes[refuted] = outcome
    followed.ceiling = new


def _refuting(ceiling: Measurement | None, candidates: Sequence[Outcome]) -> Outcome | None:
    if ceiling is None:
        return None
    return next((one for one in candidates if one.measurement and is_refuted(ceiling, one.measurement)), None)


def _at_ceiling(outcome: Outcome, ceiling: Measurement) -> Outcome:
    m = outcome.measurement
    if m is None or m.goodput is None or outcome.role == "ceiling":
        return outcome
    alone = {share.rank: share.samples_per_s for share in ceiling.ranks}
    ranks = tuple(
        share
        if share.goodput is None or share.rank not in alone
        else replace(share, goodput=min(1.0, share.samples_per_s / alone[share.rank]))
        for share in m.ranks
    )
    goodput = _slowest_goodput(ranks)
    share = m.samples_per_s / ceiling.samples_per_s if goodput is None else goodput
    low, high = ratio_interval(m.samples_per_s, m.ci95, ceiling)
    factor = share * ceiling.samples_per_s / m.samples_per_s
    hosts = tuple(
        replace(host, goodput=None if host.goodput is None else min(1.0, host.goodput * share / m.goodput))
        for host in m.hosts
    )
    stated = replace(m, goodput=share, goodput_ci95=(factor * low, factor * high), ranks=ranks, hosts=hosts)
    return replace(outcome, measurement=limit_goodput(stated))


def _slowest_goodput(ranks: Sequence[RankShare]) -> float | None:
    return min((share.goodput for share in ranks if share.goodput is not None), default=None)


def limit_goodput(m: Measurement) -> Measurement:
    """The measurement with no share of the ceiling above 1, of its ranks and hosts either."""
    return replace(
        m,
        goodput=_at_most_all(m.goodput),
        goodput_ci95=None if m.goodput_ci95 is None else _within_all(m.goodput_ci95),
        ranks=tuple(replace(share, goodput=_at_most_all(share.goodput)) for share in m.ranks),
        hosts=tuple(replace(share, goodput=_at_most_all(share.goodput)) for share in m.hosts),
    )


def _at_most_all(share: float | None) -> float | None:
    return None if share is None else min(1.0, share)


def _within_all(interval: Interval) -> Interval:
    return min(1.0, interval[0]), min(1.0, interval[1])
