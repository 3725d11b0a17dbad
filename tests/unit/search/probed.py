"""A search that ends with its probes."""

from __future__ import annotations

from dataclasses import replace

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Failure, Goal, Outcome
from pipetune.search.probes import next_probe
from pipetune.search.state import State
from tests.fakes import outcome

GOAL = Goal(target=0.9, metric="goodput")
CEILING = 10_000.0
FAILED = Failure(kind="crashed", phase="open", message="x")
BACKENDS = ("pillow", "opencv", "simplejpeg", "dali")
SPACE = Space(
    backends=BACKENDS, workers=(0, 1, 2, 4), prefetch=(2,), batch_size=64, pin_memory=False,
    settings=(("loader", ("torch", "threads")),),
)  # fmt: skip


def probed(costs: dict[str, tuple[float, float]], *, failing: frozenset[str] = frozenset()) -> list[Outcome]:
    """The probes of a search that ends with them, and its default.

    Args:
        costs: CPU seconds per 1000 samples of a backend's worker process, and of its thread.
    """
    outcomes: list[Outcome] = []
    while (step := next_probe(State.after(SPACE, GOAL, outcomes), 0)[0]) is not None:
        candidate = step[0]
        if candidate.key in failing:
            outcomes.append(replace(outcome(candidate.backend, failure=FAILED), candidate=candidate))
            continue
        cost = costs[candidate.backend][candidate.loader == "threads"]
        outcomes.append(replace(_costing(candidate, cost), candidate=candidate))
        assert len(outcomes) < 20
    return outcomes


def _costing(candidate: Candidate, cost: float) -> Outcome:
    return outcome(
        candidate.backend, candidate.num_workers, rate=1000 / cost, ceiling=CEILING, cpu_s_per_1000_samples=cost,
        role="baseline" if candidate == search.baseline(SPACE) else "candidate",
    )  # fmt: skip


COSTS = {"pillow": (2.0, 1.2), "opencv": (1.4, 0.6), "simplejpeg": (1.5, 0.7), "dali": (3.0, 3.0)}
