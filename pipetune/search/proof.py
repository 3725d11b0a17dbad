"""Proof before an edit: whether a change of the user's settings is recommended. Pure.

An edit costs the user work and trust, so it is recommended only where it is proven to be worth it:

- the 95 % interval of its gain over the baseline lies above 1; or
- it saves at least one core or a tenth of the memory, both as measured (CPU seconds and PSS, not worker counts), and
  loses no more than 2 % of the rate, with a confidence of 95 % to that one side.

Otherwise the baseline stays as it is. The gain is that of the blocks in which both were measured side by side, so that
a machine that changes its speed between them changes nothing. Its interval takes the run-to-run noise that is known at
the end of the sweep, and not what each measurement knew when it was made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from pipetune.candidates.space import Space
from pipetune.records.edit import FASTER, LEANER, TOO_NOISY, UNPROVEN, Edit
from pipetune.records.sweep import Candidate, Goal, Measurement, Outcome
from pipetune.search.choice import choose, eligible
from pipetune.search.pooled import baseline, is_clearly_sufficient, latest, repetitions
from pipetune.search.ties import SAME_RATE
from pipetune.stats.intervals import Z95, t95
from pipetune.stats.noise import LOADER_BOUND, felt_frac, lost_to_loader, run_noise
from pipetune.stats.rates import EARLY_FACTOR

#: Largest loss of the rate (share) that a saving may cost.
MAX_LOSS = 0.02
#: Smallest savings that are worth an edit: cores, and a share of the memory.
MIN_CORES, MIN_MEMORY_FRAC = 1.0, 0.1
#: Half-width of the gain's interval (on a logarithmic scale) above which nothing is said before more was measured.
MAX_HALF = 0.25
#: One-sided 95 % quantile of the normal distribution per two-sided one.
_ONE_SIDED = 1.645 / Z95
#: By how much wider the interval of a gain is that was not measured side by side: the candidate is then the best of
#: about ten first looks, and 2.81 is the normal quantile of 5 % among ten (Šidák) where 1.96 is that of one.
_SELECTED = 2.81 / Z95
#: An interval that is wider than that has to lie above 1 by so many half-widths. Why: where repeats scatter by 30 %, an
#: estimate of the scatter from a few of them is often too small (``benchmarks/search/edits.py``).
_NOISY = 1.5
#: A block whose gain is off the mean of at least two others by so many half-widths of a block's gain is left out. Why:
#: that is about four standard deviations, so that it is no scatter, and one moment in which other programs took the
#: cores would hide what the other blocks show. Coverage with and without such moments: ``tests/unit/search``.
_DISTURBED = 2.0
_MIN_PAIRS = 3
#: Student's t of the scatter within a run of a dozen windows, per normal quantile.
_WITHIN = t95(11) / Z95


@dataclass(frozen=True, slots=True)
class _Pair:
    """A candidate and the baseline, measured in one block; or apart, which is block 0."""

    block: int
    candidate: Measurement
    base: Measurement

    @property
    def log_gain(self) -> float:
        """Logarithm of the gain."""
        return math.log(self.candidate.samples_per_s / self.base.samples_per_s)


def judge_edit(candidate: Candidate, outcomes: Sequence[Outcome], space: Space) -> Edit | None:
    """What is known of a change from the baseline to a candidate; ``None``: one of them was not measured.

    Args:
        outcomes: all measurements of the sweep, in their order.
    """
    base = baseline(space)
    pairs = _pairs_of(candidate, base, outcomes)
    if not pairs:
        return None
    pairs, outcomes = _leave_out_disturbed(pairs, outcomes)
    logs, halves = [pair.log_gain for pair in pairs], _halves_of(pairs, outcomes)
    blocks = sum(pair.block > 0 for pair in pairs)
    log_gain, half = fmean(logs), math.hypot(*halves) / len(pairs)
    half *= EARLY_FACTOR if blocks else _SELECTED
    is_noisy, half = half > MAX_HALF, max(half, _half_of_scatter(logs))
    cores, memory = _saved_cores(pairs), _saved_memory_frac(pairs)
    verdict = _verdict(log_gain, half, blocks, saves=_is_saving(cores, memory), is_noisy=is_noisy)
    beside = half if blocks else half * EARLY_FACTOR / _SELECTED  # as wide as it will be side by side
    needed = None if verdict in (FASTER, LEANER) else _needed_blocks(log_gain, beside, len(pairs), cores, memory)
    return Edit(
        key=candidate.key,
        verdict=verdict,
        gain=math.exp(log_gain),
        gain_ci95=(math.exp(log_gain - half), math.exp(log_gain + half)),
        saved_cores=cores,
        saved_memory_frac=memory,
        blocks=blocks,
        more_blocks=None if needed is None else max(1, needed - blocks),
        more_s=None if needed is None else max(1, needed - blocks) * _seconds_per_block(candidate, base, outcomes),
    )


def _verdict(log_gain: float, half: float, blocks: int, *, saves: bool, is_noisy: bool) -> str:
    if log_gain > half * (_NOISY if is_noisy else 1.0):
        return FASTER
    if saves and blocks and log_gain - _ONE_SIDED * half >= math.log(1 - MAX_LOSS):
        return LEANER
    return TOO_NOISY if half > MAX_HALF and log_gain + half > 0 else UNPROVEN


def _is_saving(cores: float | None, memory: float | None) -> bool:
    return (cores is not None and cores >= MIN_CORES) or (memory is not None and memory >= MIN_MEMORY_FRAC)


def _needed_blocks(log_gain: float, half: float, count: int, cores: float | None, memory: float | None) -> int | None:
    """How many blocks would prove the edit, if it has the gain that was measured; ``None``: none would.

    Half-widths shrink by the root of the number of blocks.
    """
    needed = []
    if log_gain > math.log(1 + SAME_RATE):
        needed.append(half / log_gain)
    if _is_saving(cores, memory) and log_gain > math.log(1 - MAX_LOSS):
        needed.append(_ONE_SIDED * half / (log_gain - math.log(1 - MAX_LOSS)))
    return math.floor(count * min(needed) ** 2) + 1 if needed else None


def _pairs_of(candidate: Candidate, base: Candidate, outcomes: Sequence[Outcome]) -> list[_Pair]:
    """Both in each block that they have in common; where there is none, what is known of each."""
    of_both = [_by_block(outcomes, one) for one in (candidate, base)]
    common = sorted(set.intersection(*map(set, of_both)))
    if common:
        return [_Pair(block, of_both[0][block], of_both[1][block]) for block in common]
    newest = latest(outcomes)
    known = [newest[key].measurement if (key := one.key) in newest else None for one in (candidate, base)]
    return [] if known[0] is None or known[1] is None else [_Pair(0, known[0], known[1])]


def _by_block(outcomes: Sequence[Outcome], candidate: Candidate) -> dict[int, Measurement]:
    return {
        outcome.block: outcome.measurement
        for outcome in outcomes
        if outcome.block and outcome.candidate == candidate and outcome.role != "ceiling" and outcome.measurement
    }


def _leave_out_disturbed(pairs: list[_Pair], outcomes: Sequence[Outcome]) -> tuple[list[_Pair], Sequence[Outcome]]:
    """The pairs, and all outcomes, without the block that contradicts all others, if there is one.

    What the others scatter by is asked without it, or it would excuse itself. The only block of new processes is never
    left out: it confirms what the others, which share a process, have shown.
    """
    if len(pairs) < _MIN_PAIRS:
        return pairs, outcomes
    middle = median(pair.log_gain for pair in pairs)
    farthest = max(pairs, key=lambda pair: abs(pair.log_gain - middle))
    rest = [pair for pair in pairs if pair is not farthest]
    fresh = {outcome.block for outcome in outcomes if not outcome.forked}
    if farthest.block in fresh and not any(pair.block in fresh for pair in rest):
        return pairs, outcomes
    rest_outcomes = [outcome for outcome in outcomes if outcome.block != farthest.block]
    logs = [pair.log_gain for pair in rest]
    half = max(fmean(_halves_of(rest, rest_outcomes)), max(logs) - min(logs))
    if abs(farthest.log_gain - fmean(logs)) <= _DISTURBED * half:
        return pairs, outcomes
    return rest, rest_outcomes


def _halves_of(pairs: Sequence[_Pair], outcomes: Sequence[Outcome]) -> list[float]:
    """Relative half-width of the interval of each pair's gain."""
    measured, repeated = [outcome.measurement for outcome in outcomes], repetitions(outcomes)

    def half_of(m: Measurement) -> float:
        return _half_of(m, run_noise(measured, repeated, felt_frac(m)))

    return [math.hypot(half_of(pair.candidate), half_of(pair.base)) for pair in pairs]


def _half_of(m: Measurement, noise: float) -> float:
    """Relative half-width of a rate's interval, by the noise that is known now where the loader decides the rate.

    Args:
        noise: see :func:`pipetune.stats.noise.run_noise`.
    """
    stated = (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s
    if m.within_error_frac is None:
        return stated
    within = _WITHIN * (EARLY_FACTOR if m.ended_early else 1.0) * m.within_error_frac
    present = Z95 * math.hypot(within, noise)
    # An accelerator that sets the pace scatters less than loaders do, which the stated interval allows for.
    return present if lost_to_loader(m) >= LOADER_BOUND else min(stated, present)


def _half_of_scatter(logs: Sequence[float]) -> float:
    """Half-width by how much the blocks' own gains differ, which no estimate of the noise explains away."""
    return 0.0 if len(logs) < 2 else Z95 * stdev(logs) / math.sqrt(len(logs))


def _saved_cores(pairs: Sequence[_Pair]) -> float | None:
    saved = [
        None
        if pair.base.cores_used is None or pair.candidate.cores_used is None
        else pair.base.cores_used - pair.candidate.cores_used
        for pair in pairs
    ]
    return _least(saved)


def _saved_memory_frac(pairs: Sequence[_Pair]) -> float | None:
    saved = [
        None
        if not pair.base.pss_bytes or pair.candidate.pss_bytes is None
        else 1 - pair.candidate.pss_bytes / pair.base.pss_bytes
        for pair in pairs
    ]
    return _least(saved)


def _least(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def _seconds_per_block(candidate: Candidate, base: Candidate, outcomes: Sequence[Outcome]) -> float:
    """Time that measuring both once more takes (s), as it did in blocks where they were in one."""
    measured = [outcome for outcome in outcomes if outcome.measurement and outcome.role != "ceiling"]
    seconds = 0.0
    for one in (candidate, base):
        own = [outcome for outcome in measured if outcome.candidate == one]
        seconds += fmean(outcome.wall_s for outcome in [o for o in own if o.block] or own)
    return seconds


def find_contender(outcomes: Sequence[Outcome], goal: Goal, space: Space) -> Candidate | None:
    """The candidate whose change from the baseline is in question; ``None``: there is none.

    The chosen one; or the one that is proven, where the chosen one is not. Where the chosen one is the baseline and
    does not clearly suffice, the fastest of the others.
    """
    choice = choose(outcomes, goal, space)
    base = baseline(space)
    if choice is None:
        return None
    if choice.outcome.candidate != base:
        return _proven_instead(choice.outcome.candidate, outcomes, goal, space)
    m = choice.outcome.measurement
    if m is not None and is_clearly_sufficient(m, goal, space):
        return None
    others = [pair for pair in eligible(latest(outcomes).values(), goal, space) if pair[0].candidate != base]
    fastest = max(others, key=lambda pair: pair[1].samples_per_s, default=None)
    return None if fastest is None else fastest[0].candidate


def _proven_instead(chosen: Candidate, outcomes: Sequence[Outcome], goal: Goal, space: Space) -> Candidate:
    """The chosen candidate; where its edit is not proven, the one that is and gains most for certain, if any.

    Why: of candidates that are about as fast, now one and now the other is chosen, and none would be in many blocks.
    """
    edit = judge_edit(chosen, outcomes, space)
    if edit is None or edit.is_proven:
        return chosen
    allowed = {outcome.candidate for outcome, _ in eligible(latest(outcomes).values(), goal, space)}
    in_blocks = {outcome.candidate for outcome in outcomes if outcome.block} & (allowed - {baseline(space), chosen})
    judged = [(one, judge_edit(one, outcomes, space)) for one in sorted(in_blocks, key=lambda one: one.key)]
    proven = [(one, found.gain_ci95[0]) for one, found in judged if found and found.verdict == FASTER and found.blocks]
    return max(proven, key=lambda pair: pair[1])[0] if proven else chosen


def is_open(edit: Edit | None) -> bool:
    """Whether further blocks may prove an edit: it is not proven, and may be worth it or is too noisy to tell."""
    return edit is not None and not edit.is_proven and (edit.more_blocks is not None or edit.verdict == TOO_NOISY)


def is_clear(edit: Edit) -> bool:
    """Whether an edit is proven by so much that it will be after one more look, which favours it less than the first.

    Why: in a user's script fresh starts confirm once, and at gains of 1.3 times one in twelve was not confirmed that
    way where repeats scatter by 5 % (``benchmarks/search/edits.py``).
    """
    half = math.log(edit.gain / edit.gain_ci95[0])
    return edit.is_proven and (edit.blocks > 0 or math.log(edit.gain) > _NOISY * half)


def is_within_reach(edit: Edit, blocks: int) -> bool:
    """Whether so many further blocks are expected to prove an edit, or to make its interval narrow enough."""
    if edit.more_blocks is not None and edit.more_blocks <= blocks:
        return True
    return edit.verdict == TOO_NOISY and blocks > 0
