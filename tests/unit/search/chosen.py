"""The recommended candidate alone, without its ties and doubts."""

from __future__ import annotations

from collections.abc import Iterable

from pipetune.candidates.space import Space
from pipetune.records.sweep import Goal, Outcome
from pipetune.search.choice import cheapest
from pipetune.search.pooled import known


def recommend(outcomes: Iterable[Outcome], goal: Goal, space: Space) -> Outcome | None:
    return cheapest(known(list(outcomes), goal).values(), goal, space)
