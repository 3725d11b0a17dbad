"""Many verdicts into one: of all windows of a run, and of the ranks of a job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipetune.diagnosis import causes
from pipetune.diagnosis.attribution import headline, is_proven
from pipetune.diagnosis.sentences import run_sentence
from pipetune.records.observation import LOADER_WAIT
from pipetune.records.watch import CauseShare, Verdict
from pipetune.stats.intervals import wilson


def whole_run(verdicts: Sequence[Verdict]) -> Verdict | None:
    """One rank's windows as one verdict: loss weighted by time, shares by lost time. ``None``: there are none.

    Evidence and advice are those of the newest window with the same headline.
    """
    known = [verdict for verdict in verdicts if verdict.lost_frac is not None]
    if not known:
        return verdicts[-1] if verdicts else None
    seconds = sum(verdict.seconds for verdict in known)
    lost_s = [verdict.seconds * (verdict.lost_frac or 0.0) for verdict in known]
    lost = sum(lost_s) / seconds if seconds else 0.0
    total: dict[str, float] = {}
    for verdict, weight in zip(known, lost_s, strict=True):
        for share in verdict.shares:
            total[share.cause] = total.get(share.cause, 0.0) + weight * share.share
    whole = sum(total.values())
    parts = {cause: value / whole for cause, value in sorted(total.items(), key=lambda item: -item[1])} if whole else {}
    readings = sum(verdict.looks for verdict in known)
    cause = _headline(lost, readings, parts, known)
    like = next((verdict for verdict in reversed(known) if verdict.cause == cause), known[-1])
    utils = [(verdict.util_frac, verdict.seconds) for verdict in known if verdict.util_frac is not None]
    return replace(
        like,
        seconds=seconds,
        util_frac=sum(u * s for u, s in utils) / sum(s for _, s in utils) if utils else None,
        lost_frac=lost,
        lost_ci95=_lost_interval(known, lost),
        cause=cause,
        shares=tuple(
            CauseShare(cause=name, share=share, ci95=wilson(share, readings * max(lost, 0.01)))
            for name, share in parts.items()
        ) if lost >= causes.HEALTHY_LOST else (),
        sentence=run_sentence(cause, like.source, lost, parts, seconds),
        activities=_mean_activities(known),
        looks=readings,
        stacks=sum(verdict.stacks for verdict in known),
    )  # fmt: skip


def worst_first(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The ranks of one window, the one that holds up the others first.

    Ranks that mostly wait for the others are not the cause: the slowest rank makes them wait, and itself waits least.
    """
    if len(verdicts) < 2:
        return tuple(verdicts)
    ordered = sorted(verdicts, key=lambda verdict: (verdict.lost_frac is None, -_own_loss(verdict)))
    waiting = [verdict for verdict in ordered if verdict.cause == causes.COMMUNICATION]
    slowest = next((verdict for verdict in ordered if _holds_up(verdict)), None)
    if slowest is None or not waiting:
        return tuple(ordered)
    ordered.remove(slowest)
    slow = f"rank {slowest.rank}" if slowest.rank is not None else f"process {slowest.pid}"
    return tuple(
        replace(verdict, advice=f"none for this rank: it waits for {slow} ({causes.title_of(slowest.cause)})")
        if verdict in waiting
        else verdict
        for verdict in (slowest, *ordered)
    )


def _holds_up(verdict: Verdict) -> bool:
    """Whether other ranks may have to wait for this one."""
    if verdict.cause == causes.UNDETERMINED:
        return _own_loss(verdict) >= causes.HEALTHY_LOST
    # A throttled rank loses next to nothing itself, but all others wait for it.
    return verdict.cause not in (causes.COMMUNICATION, causes.HEALTHY, causes.NOT_STARTED)


def _own_loss(verdict: Verdict) -> float:
    """Lost time that is not spent waiting for other ranks."""
    communication = sum(share.share for share in verdict.shares if share.cause == causes.COMMUNICATION)
    return (verdict.lost_frac or 0.0) * (1 - communication)


def _headline(lost: float, readings: int, parts: dict[str, float], verdicts: Sequence[Verdict]) -> str:
    if lost < causes.HEALTHY_LOST:
        seconds: dict[str, float] = {}
        for verdict in verdicts:
            seconds[verdict.cause] = seconds.get(verdict.cause, 0.0) + verdict.seconds
        longest = max(seconds, key=lambda cause: seconds[cause])
        clear = longest in (causes.THROTTLED, causes.UNDETERMINED) and 2 * seconds[longest] > sum(seconds.values())
        return longest if clear else causes.HEALTHY
    if all(verdict.source == LOADER_WAIT for verdict in verdicts) and not is_proven(lost, readings):
        return causes.UNDETERMINED  # the job may just as well be healthy
    return headline(parts)


def _lost_interval(verdicts: Sequence[Verdict], lost: float) -> tuple[float, float] | None:
    known = [verdict for verdict in verdicts if verdict.lost_ci95 is not None]
    total = sum(verdict.seconds for verdict in known)
    if not total:
        return None
    below = above = 0.0
    for verdict in known:
        low, high = verdict.lost_ci95 or (0.0, 1.0)
        weight, middle = verdict.seconds / total, verdict.lost_frac or 0.0
        # Windows are taken as independent: the half widths add in quadrature.
        below, above = below + (weight * (middle - low)) ** 2, above + (weight * (high - middle)) ** 2
    return max(0.0, lost - below**0.5), min(1.0, lost + above**0.5)


def _mean_activities(verdicts: Sequence[Verdict]) -> dict[str, float]:
    total = sum(verdict.seconds for verdict in verdicts)
    done: dict[str, float] = {}
    for verdict in verdicts:
        for name, share in verdict.activities.items():
            done[name] = done.get(name, 0.0) + share * verdict.seconds / total
    return dict(sorted(done.items(), key=lambda item: -item[1]))
