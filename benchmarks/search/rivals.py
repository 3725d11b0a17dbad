"""Other ways to search for a configuration, on the worlds of ``play.py``.

The rules of existing tuners are written anew from their documentation, and only as far as they choose: they get the
same measurements as pipetune does.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from benchmarks.search.play import GOAL, SECONDS, Policy, World, choice_of
from pipetune import search
from pipetune.records.sweep import Candidate, Outcome


def grid(world: World) -> tuple[Candidate, bool]:
    """Measure everything, in random order."""
    everything = world.everything()
    random.Random(world.seed).shuffle(everything)
    return choice_of(world, [world.measure(candidate, SECONDS) for candidate in everything])


def random_search(seconds: float) -> Policy:
    """Measure random candidates for so long."""

    def policy(world: World) -> tuple[Candidate, bool]:
        everything = world.everything()
        random.Random(world.seed).shuffle(everything)
        outcomes: list[Outcome] = []
        while everything and (world.clock_s < seconds or not outcomes):
            outcomes.append(world.measure(everything.pop()))
        return choice_of(world, outcomes)

    return policy


def tree_parzen(seconds: float) -> Policy:
    """Optuna's TPE sampler with its median pruner for so long. https://optuna.readthedocs.io/

    The objective is what a user would write: goodput until the target is met, then the fewer cores the
    better. Each trial reports its rate after one second, and may be pruned then.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def policy(world: World) -> tuple[Candidate, bool]:
        outcomes: list[Outcome] = []
        known: dict[str, float] = {}
        space, allowed = world.space, {c.key: c for c in world.everything()}

        def objective(trial: Any) -> float:
            chosen = {name: trial.suggest_categorical(name, list(values)) for name, values in space.settings}
            # By place in the list: counts have an order.
            candidate = space.candidate(
                trial.suggest_categorical("backend", list(space.backends)),
                space.workers[trial.suggest_int("workers", 0, len(space.workers) - 1)],
                space.prefetch[trial.suggest_int("prefetch", 0, len(space.prefetch) - 1)], **chosen,
            )  # fmt: skip
            if candidate.key not in allowed:
                return 0.0
            if candidate.key in known:
                return known[candidate.key]
            before_s = world.clock_s
            outcome = world.measure(candidate)
            if outcome.measurement is None:
                return known.setdefault(candidate.key, 0.0)
            value = known[candidate.key] = _value(world, outcome)
            trial.report(value, 0)
            if trial.should_prune():
                world.clock_s = min(world.clock_s, before_s + outcome.wall_s - outcome.measurement.timed_s + 1.0)
                raise optuna.TrialPruned
            outcomes.append(outcome)
            return value

        study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=world.seed),
            pruner=optuna.pruners.MedianPruner(),
        )
        while world.clock_s < seconds or not outcomes:
            study.optimize(objective, n_trials=1)
            if len(study.trials) > 3 * len(allowed):
                break
        return choice_of(world, outcomes)

    return policy


def _value(world: World, outcome: Outcome) -> float:
    m = outcome.measurement
    assert m is not None
    if not search.meets(m, GOAL):
        return m.goodput or 0.0
    return 1.0 + 1.0 - min(1.0, (m.cores_used or 0.0) / world.cores)


def workers_as_cores(world: World) -> tuple[Candidate, bool]:
    """``num_workers = cores``, the default decoder."""
    return _single(world, max(count for count in world.space.workers if count <= world.cores))


def greedy_by_two(world: World) -> tuple[Candidate, bool]:
    """PaddlePaddle's autotune of its loader: two more workers as long as that takes a quarter off a batch's time, below
    half of the cores; then up to five counts above the best one, each of which would have to take off more.

    https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/incubate/autotune/set_config_en.html
    """
    most = max(1, world.cores // 2)
    outcomes: list[Outcome] = []

    def cost(wanted: int) -> float:
        outcomes.append(_measure_default(world, _nearest(world, wanted)))
        measurement = outcomes[-1].measurement
        return 1 / measurement.samples_per_s if measurement else math.inf

    best, least, wanted = 0, math.inf, 0
    while wanted < most:
        now = cost(wanted)
        if now < 0.75 * least:
            best, least = wanted, now
        else:
            share, better = 0.7, None
            for more in range(best + 1, min(most, best + 6)):
                if cost(more) < share * least:
                    better = more
                    break
                share *= 0.8
            if better is None:
                break
            best = better
        wanted += 2
    chosen = next(o for o in outcomes if o.candidate.num_workers == _nearest(world, best))
    return chosen.candidate, chosen.measurement is not None and search.meets(chosen.measurement, GOAL)


def few_rules(world: World) -> tuple[Candidate, bool]:
    """loadtune's default: at most five counts, and the cheapest within 2 % of the best. https://pypi.org/project/loadtune/"""
    counts = {1, 2, 4, world.cores // 2, max(1, world.cores - 2)}
    outcomes = [_measure_default(world, count) for count in sorted({_nearest(world, c) for c in counts})]
    measured = [(o.candidate, o.measurement) for o in outcomes if o.measurement]
    if not measured:
        return search.baseline(world.space), False
    most = max(m.samples_per_s for _, m in measured)
    candidate, m = next(pair for pair in measured if pair[1].samples_per_s >= 0.98 * most)
    return candidate, search.meets(m, GOAL)


def _nearest(world: World, count: int) -> int:
    return min(world.space.workers, key=lambda listed: (abs(math.log2((listed + 0.5) / (count + 0.5))), listed))


def _measure_default(world: World, count: int) -> Outcome:
    usual = world.space.candidate(world.space.default_backend, count, 2)
    settings = {name: values[0] for name, values in world.space.settings}
    return world.measure(replace(usual, **settings) if usual not in world.everything() else usual, SECONDS)


def _single(world: World, count: int) -> tuple[Candidate, bool]:
    outcome = _measure_default(world, count)
    return outcome.candidate, outcome.measurement is not None and search.meets(outcome.measurement, GOAL)
