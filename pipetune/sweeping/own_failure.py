"""Whether a script fails by itself, so that no candidate can be recommended. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.errors import FailsAgainError, PipetuneError, UsageError
from pipetune.measure.failures import NO_MAIN_GUARD
from pipetune.records.sweep import Failure, Outcome
from pipetune.sweeping.sweep_plan import Plan

#: Kinds of failures of a script as it is that are no crash of it: it ended or was ended, took too long, or could not be
#: started or measured.
_NO_CRASH = ("script_ended", "checkpoint", "too_few", "hung", "too_short", "interrupted", "spawn", "usage")
#: Kinds of failures that keeping batches for the ceiling may have caused.
_BY_KEPT_BATCHES = ("out_of_gpu_memory", "out_of_memory", "out_of_locked_memory", "device_error", "device_lost")


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
        raise _explain_own(failure)
    methods = dict(plan.space.settings).get("start_method", ())
    if failure.kind == NO_MAIN_GUARD and len(methods) <= 1:
        raise FailsAgainError(failure.message, hint=failure.hint)


def explain_no_ceiling(plan: Plan, failure: Failure) -> PipetuneError:
    """The error of a sweep whose ceiling could not be measured: without it no share of it can be stated.

    In a script the ceiling is measured with the script's own settings, so that a crash is the script's.
    """
    if plan.in_script and failure.kind not in (*_NO_CRASH, *_BY_KEPT_BATCHES):
        return _explain_own(failure)
    name = plan.conditions.workload.accelerator.name
    kind = UsageError if failure.kind == "usage" else FailsAgainError
    return kind(f"cannot measure what {name} takes at most: {failure.message}", hint=failure.hint)


def _explain_own(failure: Failure) -> FailsAgainError:
    return FailsAgainError(f"your script fails as it is, with its own settings: {failure.message}", hint=failure.hint)
