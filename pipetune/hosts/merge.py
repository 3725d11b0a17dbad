"""Joins what several hosts measured at the same time into one :class:`Outcome`. Pure.

The outcome is the slowest host's: with it all others are fast enough, and cores, workers and memory are those of one
host, as in a sweep on it alone. What each host did stands beside it.

Why no sum: what a search decides by (cores that are used of those that there are) is one host's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from pipetune.hosts.tasks import Answer
from pipetune.records.shares import slowest_host
from pipetune.records.sweep import HostShare, Measurement, Outcome
from pipetune.units import format_share

#: A host that was timed alone for more than this share did not show what all do together.
_ALONE = 0.2
#: What hosts would lose by waiting for each other is told from this share on.
_LOST = 0.05
#: As many times the batches that are fetched ahead are needed to see that.
_TIMES_AHEAD = 3
#: A whole number of steps stays one, whatever adding times up does to its last digits.
_ROUNDING = 1e-6


def join_hosts(answers: Sequence[Answer], name_of: Callable[[int], str], ceiling: Measurement | None = None) -> Outcome:
    """The outcome of all hosts.

    Args:
        answers: in the order of the hosts.
        name_of: a host in words.
        ceiling: the max ingestion rate that goodput is a share of.
    """
    for host, answer in enumerate(answers):
        failure = answer.outcome.failure
        if failure is not None:
            named = replace(failure, message=f"{name_of(host)}: {failure.message}")
            return replace(answers[0].outcome, measurement=None, failure=named)
    shares = tuple(_share(host, answer, answers, name_of(host)) for host, answer in enumerate(answers))
    slowest = slowest_host(shares)
    chosen = answers[slowest.host].outcome
    assert chosen.measurement is not None
    # Replayed batches share nothing with other hosts.
    alone = [share for share in shares if share.together_frac < 1 - _ALONE and chosen.role != "ceiling"]
    doubts = tuple(
        f"{share.name} was timed together with all others for {format_share(share.together_frac)} of its time; measure "
        "longer with --seconds"
        for share in alone[:1]
    )
    lost = lost_by_waiting(answers)
    if lost is not None and lost >= _LOST and chosen.role != "ceiling":
        doubts += (
            f"hosts are slow at different times: where each step waits for all of them, as when gradients are "
            f"exchanged, the rate is about {format_share(lost)} lower",
        )
    before = [share.name for share in ceiling.hosts] if ceiling is not None else []
    if before and before != [share.name for share in shares]:
        doubts += (
            f"the max ingestion rate was measured on {', '.join(before)}, this on {', '.join(s.name for s in shares)}",
        )
    first = answers[0].outcome
    assert first.measurement is not None
    measurement = replace(
        chosen.measurement, hosts=shares,
        # Of one machine: how fast another one is, is no change of it.
        machine_speed_before=first.measurement.machine_speed_before,
        machine_speed_after=first.measurement.machine_speed_after,
        machine_cpu_speed=first.measurement.machine_cpu_speed, warnings=(*chosen.measurement.warnings, *doubts),
        steady=all(one.outcome.measurement is not None and one.outcome.measurement.steady for one in answers),
    )  # fmt: skip
    return replace(first, measurement=measurement, wall_s=max(one.outcome.wall_s for one in answers))


def lost_by_waiting(answers: Sequence[Answer]) -> float | None:
    """By which share the rate would be lower than the slowest host's, if each step waited for all hosts.

    The time in which all were timed is cut into parts in which the slowest host ends as many steps as batches are
    fetched ahead: within one, a host that is late has batches in store to catch up with. In each part all would end as
    many steps as the host that ended the fewest. By time and not by the number of the step: a storage that keeps all
    hosts waiting at the same moment makes none of them wait for another.

    Returns:
        ``None``: too few steps were timed to tell.
    """
    candidate = answers[0].outcome.candidate
    ahead = max(1, candidate.num_workers * candidate.prefetch_depth)
    # When each host's steps ended, after the moment at which the first of them began.
    ends_s = [list(accumulate(one.steps_s, initial=one.steps_from_s)) for one in answers]
    begin, end = max(one[0] for one in ends_s), min(one[-1] for one in ends_s)
    if end <= begin:
        return None
    parts = int(min(_steps_by(end, one) - _steps_by(begin, one) for one in ends_s) / ahead + _ROUNDING)
    if parts < _TIMES_AHEAD:
        return None
    edges = [begin + (end - begin) * at / parts for at in range(parts + 1)]
    ended = [[_steps_by(last, one) - _steps_by(first, one) for first, last in pairwise(edges)] for one in ends_s]
    together: list[float] = [min(one) for one in zip(*ended, strict=True)]
    return max(0.0, 1 - sum(together) / min(map(sum, ended)))


def _steps_by(moment_s: float, ends_s: Sequence[float]) -> float:
    """How many steps a host had ended at a moment, with the part of the one that it was in."""
    at = min(bisect_right(ends_s, moment_s), len(ends_s) - 1)
    began, ended = ends_s[at - 1], ends_s[at]
    return at - 1 + (min(1.0, (moment_s - began) / (ended - began)) if ended > began else 1.0)


def _share(host: int, answer: Answer, answers: Sequence[Answer], name: str) -> HostShare:
    m = answer.outcome.measurement
    assert m is not None
    return HostShare(
        host=host, name=name, samples_per_s=m.samples_per_s, ci95=m.ci95, goodput=m.goodput,
        data_wait_frac=m.data_wait_frac, accelerator_idle_frac=m.accelerator_idle_frac, cores_used=m.cores_used,
        read_bytes_per_s=_reading(m), together_frac=together(answer, answers),
    )  # fmt: skip


def _reading(m: Measurement) -> float | None:
    return None if m.read_bytes_per_sample is None else m.read_bytes_per_sample * m.samples_per_s


def together(answer: Answer, answers: Sequence[Answer]) -> float:
    """Share of a host's timed phase in which all were timed."""
    spans = [(one.timed_from_s, one.timed_until_s) for one in (answer, *answers)]
    known = [(first, last) for first, last in spans if first is not None and last is not None]
    if len(known) < len(spans) or known[0][1] <= known[0][0]:
        return 0.0
    begin, end = max(first for first, _ in known), min(last for _, last in known)
    return min(1.0, max(0.0, end - begin) / (known[0][1] - known[0][0]))
