"""The recommended candidate alone, without ties and uncertainties, and a few candidates to choose from."""

from __future__ import annotations

from collections.abc import Iterable

from pipetune.candidates.space import Space
from pipetune.records.sweep import Goal, Outcome
from pipetune.search.choice import cheapest
from pipetune.search.pooled import noise_of, pool
from tests.fakes import outcome

GOAL = Goal(target=0.9, metric="goodput")
SPACE = Space(
    backends=("pillow", "opencv", "jpeg-roi", "dali"), workers=(0, 1, 2, 4), prefetch=(2, 4), batch_size=64,
    pin_memory=False,
)  # fmt: skip


def recommend(outcomes: Iterable[Outcome], goal: Goal, space: Space) -> Outcome | None:
    return cheapest(pool(list(outcomes), goal).values(), goal, space, noise_of(list(outcomes)))


def chosen(*outcomes: object, goal: Goal = GOAL, space: Space = SPACE) -> str:
    found = recommend(outcomes, goal, space)  # type: ignore[arg-type]
    assert found is not None
    return found.candidate.key


FRUGAL = outcome("dali", 2, rate=1250, cores_used=1.0, pss_bytes=900)
SMALL = outcome("opencv", 2, rate=1250, cores_used=1.5, pss_bytes=100)
TRUE = outcome("jpeg-roi", 2, rate=1250, cores_used=1.5, pss_bytes=900)
