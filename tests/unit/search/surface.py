"""A machine on which rates follow from a table, and a search on it without blocks."""

from __future__ import annotations

from dataclasses import replace

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Failure, Goal, Outcome
from pipetune.search.next_step import next_step
from pipetune.search.state import State
from tests.fakes import outcome

GOAL = Goal(target=0.9, metric="goodput")
SPACE = Space(
    backends=("pillow", "opencv", "dali"), workers=(0, 1, 2, 4, 8), prefetch=(2, 4), batch_size=64, pin_memory=False
)
CEILING = 2000.0
FAILED = Failure(kind="crashed", phase="open", message="x")

#: Samples/s per worker, and the worker count beyond which nothing is gained.
SURFACE = {"pillow": (250.0, 8), "opencv": (700.0, 4), "dali": (500.0, 8)}


def next_candidate(space: Space, outcomes: list[Outcome], goal: Goal, seed: int) -> Candidate | None:
    """The step alone, without blocks."""
    step = next_step(State.after(space, goal, outcomes), seed)
    return None if step is None else step[0]


def measured(candidate: Candidate) -> Outcome:
    per_worker, knee = SURFACE[candidate.backend]
    rate = min(
        CEILING, per_worker * min(max(1, candidate.num_workers), knee) * (0.8 if candidate.num_workers == 0 else 1)
    )
    return outcome(
        candidate.backend, candidate.num_workers, candidate.prefetch_depth, rate=rate, ceiling=CEILING,
        cpu_s_per_1000_samples=1000 / per_worker, cores_used=rate / per_worker,
        pss_bytes=2**28 * (1 + candidate.num_workers * candidate.prefetch_depth),
        role="baseline" if candidate == search.baseline(SPACE) else "candidate",
    )  # fmt: skip


def run(space: Space = SPACE, goal: Goal = GOAL, seed: int = 0, fails: tuple[str, ...] = ()) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while (candidate := next_candidate(space, outcomes, goal, seed)) is not None:
        assert candidate.key not in search.latest(outcomes), "nothing is measured twice"
        failed = candidate.backend in fails
        got = (
            outcome(candidate.backend, candidate.num_workers, candidate.prefetch_depth, failure=FAILED)
            if failed
            else None
        )
        outcomes.append(got or measured(candidate))
        assert len(outcomes) <= 40
    return outcomes


#: Factors on the rate per worker: what a setting brings.
GAINS = {"loader": {"threads": 1.6}, "transfer": {"uint8": 1.3}, "allocator": {"glibc": 1.02}}
KNOBBED = replace(SPACE, settings=(
    ("loader", ("torch", "threads")), ("transfer", ("float32", "uint8")), ("allocator", ("default", "glibc")),
))  # fmt: skip


def knobbed(candidate: Candidate) -> Outcome:
    plain = measured(candidate)
    assert plain.measurement is not None
    factor = 1.0
    for name, gains in GAINS.items():
        factor *= gains.get(getattr(candidate, name), 1.0)
    rate = min(CEILING, plain.measurement.samples_per_s * factor)
    cores = rate / SURFACE[candidate.backend][0] / factor
    new = replace(plain.measurement, samples_per_s=rate, ci95=(rate, rate), goodput=rate / CEILING, cores_used=cores,
                  cpu_s_per_1000_samples=1000 * cores / rate)  # fmt: skip
    return replace(plain, candidate=candidate, measurement=new)


def run_knobbed() -> list[Outcome]:
    outcomes: list[Outcome] = []
    while (candidate := next_candidate(KNOBBED, outcomes, GOAL, 0)) is not None:
        assert candidate.key not in search.latest(outcomes), "nothing is measured twice"
        outcomes.append(knobbed(candidate))
        assert len(outcomes) <= 40
    return outcomes


def stuck(used: float, prefetch: tuple[int, ...] = (2,)) -> tuple[Space, list[Outcome]]:
    """Two backends end at 900/s, as if the training process took batches one by one, with so many cores in use."""
    space = replace(SPACE, workers=(1, 2, 4, 16), prefetch=prefetch, usable_cores=8)
    outcomes = [outcome("pillow", 0, rate=200, ceiling=CEILING, role="baseline", cpu_s_per_1000_samples=5.0)]
    tried = []
    while (candidate := next_candidate(space, outcomes, GOAL, 0)) is not None:
        tried.append(candidate.key)
        cost = {"pillow": 4.0, "opencv": 1.4, "dali": 2.0}[candidate.backend]
        rate = 1000 / cost * candidate.num_workers
        outcomes.append(outcome(
            candidate.backend, candidate.num_workers, rate=rate if candidate.backend == "dali" else min(rate, 900),
            ceiling=CEILING, cpu_s_per_1000_samples=cost, cores_used=used,
        ))  # fmt: skip
        outcomes[-1] = replace(outcomes[-1], candidate=candidate)
    assert len(tried) == len(set(tried))
    return space, outcomes
