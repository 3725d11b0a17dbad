"""The recommended candidate alone, without its ties and doubts."""

from __future__ import annotations

from collections.abc import Iterable

from pipetune.records import Goal, Outcome
from pipetune.search.choice import cheapest
from pipetune.search.known import known
from pipetune.space import Space


def recommend(outcomes: Iterable[Outcome], goal: Goal, space: Space) -> Outcome | None:
    return cheapest(known(list(outcomes), goal).values(), goal, space)
