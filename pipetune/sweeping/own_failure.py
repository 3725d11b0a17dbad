"""Whether a script fails by itself, so that no candidate can be recommended. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.errors import FailsAgainError
from pipetune.measure.failures import NO_MAIN_GUARD
from pipetune.records.sweep import Outcome
from pipetune.sweeping.sweep_plan import Plan

#: Kinds of failures of a script as it is that are no crash of it: it ended or was ended, took too long, or could not be
#: started or measured.
_NO_CRASH = ("script_ended", "checkpoint", "too_few", "hung", "too_short", "interrupted", "spawn", "usage")


def check_script(plan: Plan, outcomes: Sequence[Outcome]) -> None:
    """End the sweep of a script where its newest outcome says that the script itself is what fails.

    Raises:
        FailsAgainError: the script crashes with its own settings; or it has no ``__main__`` guard, and starts its
            workers in a way that needs one, so that it can have no workers.
    """
    newest = outcomes[-1] if outcomes else None
    if not plan.in_script or newest is None or newest.failure is None:
        return
    failure = newest.failure
    if newest.role == "baseline" and failure.kind not in _NO_CRASH:
        raise FailsAgainError(
            f"your script fails as it is, with its own settings: {failure.message}", hint=failure.hint
        )
    methods = dict(plan.space.settings).get("start_method", ())
    if failure.kind == NO_MAIN_GUARD and len(methods) <= 1:
        raise FailsAgainError(failure.message, hint=failure.hint)
