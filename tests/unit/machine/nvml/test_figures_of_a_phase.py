"""A candidate's short timed phase, by figures without a time of their own; the truth is known."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

import pytest

from pipetune.machine.nvml.figure_spans import FigureSpans
from pipetune.stats.busy_spans import busy_frac_within

S = 10**9
#: Idle, the set-up with bursts of work, the warm-up, the timed phase, and what is read while the child closes (s).
SET_UP_S, WARM_UP_S, TIMED_S, AFTER_S = 1.0, 2.0, 3.2, 1.0
#: The load is known in steps of this length, and before the first one it was idle (s).
STEP_S, IDLE_S = 0.001, 3.0

Load = Callable[[float, random.Random], float]
LOADS: dict[str, Load] = {
    "always busy": lambda t_s, rng: 1.0,
    "always idle": lambda t_s, rng: 0.0,
    "square wave": lambda t_s, rng: float(int(t_s / 0.25) % 2),
    "noisy": lambda t_s, rng: float(rng.random() < 0.6),
}


def measure(
    load: Load, *, period_s: float, lag_s: float, timed_s: float, seed: int = 0, bursts: bool = True,
    before: FigureSpans | None = None,
) -> tuple[float | None, float, FigureSpans]:  # fmt: skip
    """The busy share of the timed phase as it is told, the true one, and what placed the figures."""
    rng = random.Random(seed)
    ended_s = TIMED_S + timed_s

    def work(t_s: float) -> float:
        if t_s < SET_UP_S or t_s >= ended_s:
            return 0.0
        if t_s < WARM_UP_S:
            return float(bursts and rng.random() < 0.3)
        return load(t_s, rng)

    moments = [-IDLE_S + STEP_S * n for n in range(round((IDLE_S + ended_s + AFTER_S) / STEP_S))]
    total_s = list(accumulate(STEP_S * work(t_s) for t_s in moments))

    def busy_s(since_s: float, until_s: float) -> float:
        first, last = (bisect_right(moments, t_s) - 1 for t_s in (since_s, until_s))
        return total_s[max(0, last)] - total_s[max(0, first)]

    figures, spans = FigureSpans(before), []
    offset_s, t_s = rng.random() * period_s, 0.0
    while t_s < ended_s + AFTER_S:
        update_s = (t_s - lag_s - offset_s) // period_s * period_s + offset_s
        percent = min(100, round(100 * busy_s(update_s - period_s, update_s) / period_s))
        spans += figures.add(100 * S + round(t_s * S), percent)
        t_s += 0.1 + 0.01 * rng.random()
    told = busy_frac_within(spans, 100 * S + round(TIMED_S * S), 100 * S + round(ended_s * S))
    return told, busy_s(TIMED_S, ended_s) / timed_s, figures


@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize("lag_s", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("period_s", [1 / 6, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("timed_s", [1.5, 3.0])
def test_what_is_told_of_a_phase_is_true(name: str, lag_s: float, period_s: float, timed_s: float) -> None:
    error = 0.2 if name == "square wave" else 0.06  # what of a wave is not told may be a whole half of it
    for seed in range(3):
        told, truth, _ = measure(LOADS[name], period_s=period_s, lag_s=lag_s, timed_s=timed_s, seed=seed)
        assert told is None or told == pytest.approx(truth, abs=error)
        assert told is not None or period_s == 1.0 or timed_s < 3 * period_s + 0.1, seed


@pytest.mark.parametrize("lag_s", [0.0, 1.0])
@pytest.mark.parametrize("period_s", [1 / 6, 0.25, 0.5])
def test_the_shortest_phase_is_told_where_the_pace_is_known_from_an_earlier_candidate(
    lag_s: float, period_s: float
) -> None:
    """No figure changes: a loader so slow that the GPU seems idle from its set-up on."""
    _, _, before = measure(LOADS["noisy"], period_s=period_s, lag_s=lag_s, timed_s=3.0)
    for seed in range(10):
        idle = dict(period_s=period_s, lag_s=lag_s, timed_s=1.5, seed=seed, bursts=False)
        told, _, _ = measure(LOADS["always idle"], **idle, before=before)  # type: ignore[arg-type]
        assert told == 0.0
        told, _, _ = measure(LOADS["always busy"], **idle, before=before)  # type: ignore[arg-type]
        assert told == pytest.approx(1.0, abs=0.06)


def test_only_the_pace_is_taken_from_an_earlier_candidate() -> None:
    _, _, before = measure(LOADS["noisy"], period_s=0.25, lag_s=0.0, timed_s=3.0)
    after = FigureSpans(before)
    assert after.period_ns == before.period_ns is not None
    assert after.add(500 * S, 40) == []
    assert before.add(500 * S, 40) == []
