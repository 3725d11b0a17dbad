"""The recommendation: the chosen candidate where the edit is proven, else the baseline as it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipetune.candidates.space import Space
from pipetune.records.edit import Edit
from pipetune.records.sweep import Goal, Outcome
from pipetune.search.choice import Choice, choose, eligible
from pipetune.search.pooled import baseline, latest
from pipetune.search.proof import find_contender, judge_edit
from pipetune.search.uncertainties import about_other_processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What is recommended, and what was asked of the edit."""

    choice: Choice
    edit: Edit | None
    """The change from the baseline that is recommended; or the most promising one, where the baseline stays. ``None``:
    the baseline was not measured, or nothing else is worth a word."""


def recommend(outcomes: Sequence[Outcome], goal: Goal, space: Space) -> Recommendation | None:
    """The recommendation; ``None`` if nothing was measured.

    Where the user's options leave the baseline out (other worker counts, a memory limit), there is nothing to leave as
    it is, and the chosen candidate is recommended whether or not the edit is proven.
    """
    choice = choose(outcomes, goal, space)
    if choice is None:
        return None
    contender = find_contender(outcomes, goal, space)
    edit = None if contender is None else judge_edit(contender, outcomes, space)
    base = next(
        (
            outcome
            for outcome, _ in eligible(latest(outcomes).values(), goal, space)
            if outcome.candidate == baseline(space)
        ),
        None,
    )
    if choice.outcome.candidate == baseline(space):  # as good as the fastest, where another one is proven to be faster
        if edit is None or edit.is_proven:
            return Recommendation(choice=choice, edit=None)
        return Recommendation(choice=replace(choice, ties=()), edit=edit)  # the edit says what may be as good
    if edit is None or base is None:
        return Recommendation(choice=choice, edit=edit)
    if edit.is_proven:
        other = None if contender == choice.outcome.candidate else latest(outcomes).get(edit.key)
        return Recommendation(choice=choice if other is None else replace(choice, outcome=other, ties=()), edit=edit)
    doubts = tuple(about_other_processes(outcomes))
    return Recommendation(choice=replace(choice, outcome=base, ties=(), doubts=doubts), edit=edit)
