"""Why a script has ended, as the failure of what was measured, or in words for where nothing was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipetune.measure import failures
from pipetune.measure.script.last_error import find_exception, find_workers_signal, last_words, name_signal
from pipetune.measure.script.protocol import CLOSED
from pipetune.measure.script.session import ScriptSession
from pipetune.records.sweep import Failure

#: The end of the output that is searched for an exception (bytes).
_SEARCHED_BYTES = 1 << 20
#: Exit codes of a shell whose command was ended by a signal: 128 and its number.
_BY_SIGNAL = 128
#: Kind of the failure of a script in which several processes train, each on its own.
SEVERAL_TRAININGS = "several_trainings"
#: Errors of a process whose worker has ended while it handed over a batch.
_CONNECTION_LOST = ("EOFError", "ConnectionResetError", "BrokenPipeError", "ConnectionAbortedError")


@dataclass(frozen=True, slots=True)
class Cause:
    """What a script died of."""

    kind: str
    """Of the failure."""
    words: str | None
    """The exception's own line with its place, or the last line that was printed; ``None``: nothing was."""
    hint: str | None
    """What to try; ``None``: the error is the script's own."""
    raised: bool = True
    """It was an exception, or a signal in its place; ``False``: what it died of is not known."""


def explain_end(session: ScriptSession, phase: str) -> Failure:
    """The failure of a candidate during which the script, or one of its ranks, ended."""
    tail = session.tail()
    if session.checkpoint is not None:
        message = f"the script was ended when it was about to write {session.checkpoint}"
        return Failure(
            kind="checkpoint", phase=phase, message=message, hint="its epochs are shorter than a measurement"
        )
    code, cause = session.exit_code, find_cause(session)
    if cause.kind == failures.NO_MAIN_GUARD:
        return Failure(kind=cause.kind, phase=phase, message=cause.words or "", hint=cause.hint, stderr_tail=tail)
    kind, hint = cause.kind, f"see its output in {session.log}"
    hint = hint if cause.hint is None else f"{cause.hint}; {hint}"
    words = "" if cause.words is None else f": {cause.words}"
    if session.lost is not None and (code == CLOSED or not session.process_ended):
        how = "closed" if code == CLOSED else "ended, or closed"
        message = f"rank {session.lost} of the script has {how} pipetune's connection{words}"
        return Failure(kind=kind, phase=phase, message=message, hint=hint, stderr_tail=tail)
    if not code:
        return Failure(kind="script_ended", phase=phase, message="the script ended", stderr_tail=tail)
    message = f"the script {describe_exit(code)}{words}"
    return Failure(kind=kind, phase=phase, message=message, hint=hint, stderr_tail=tail)


def explain_hung(session: ScriptSession, phase: str, limit_s: float) -> Failure:
    """The failure of a candidate with which the script came to no result in time."""
    failure = failures.hung(phase, limit_s, session.tail())
    printed = find_exception(session.tail(_SEARCHED_BYTES))
    words = "" if printed is None else f"; the last exception that it printed: {printed.in_words(os.getcwd())}"
    hint = f"{failure.hint}; see its output in {session.log}"
    return replace(failure, message=f"{failure.message}{words}", hint=hint)


def explain_several(trainings: int, phase: str) -> Failure:
    """The failure of a script that trains several times at once: what one of them is given, the others compete with."""
    message = (
        f"{trainings} processes of the script train at the same time, each on its own; a sweep measures one training"
    )
    hint = "let the script start one training process, tune that, and give all of them its settings"
    return Failure(kind=SEVERAL_TRAININGS, phase=phase, message=message, hint=hint)


def explain_error(message: Mapping[str, Any], tail: str, oom_kills: int | None) -> Failure:
    """The failure of a candidate of which the script's process, which goes on, has told.

    Args:
        message: see :func:`pipetune.hook.told_failure.describe_failure`.
        tail: the end of the script's output.
        oom_kills: see :func:`pipetune.measure.failures.from_signal`.
    """
    text, phase = message["message"], message["phase"]
    number = message.get("worker_signal") or find_workers_signal(text)
    known = failures.recognise([text])
    if known is None or known[0] in ("crashed", "killed"):
        if number:
            kind, hint = failures.from_signal(number, oom_kills)
            text = f"a loader worker was killed by {name_signal(number)}"
            return Failure(kind=kind, phase=phase, message=text, hint=hint, stderr_tail=tail)
        if message["error"] in _CONNECTION_LOST:
            text = f"a loader worker ended while it handed over a batch ({message['error']})"
            return Failure(kind="crashed", phase=phase, message=text, stderr_tail=tail)
    if known is not None:
        return Failure(kind=known[0], phase=phase, message=text, hint=known[1], stderr_tail=tail)
    raised = find_exception(message.get("traceback", ""))
    text = f"{message['error']}: {text}" if raised is None else raised.in_words(os.getcwd())
    return Failure(kind="error", phase=phase, message=text, stderr_tail=tail)


def describe_exit(code: int) -> str:
    """``ended with exit code 1``, ``was killed by SIGKILL``."""
    if code < 0:
        return f"was killed by {name_signal(-code)}"
    by_signal = f" ({name_signal(code - _BY_SIGNAL)})" if _BY_SIGNAL < code < _BY_SIGNAL + 65 else ""
    return f"ended with exit code {code}{by_signal}"


def find_cause(session: ScriptSession) -> Cause:
    """What the script died of, by its output and its exit code."""
    output = session.tail(_SEARCHED_BYTES)
    if session.unguarded or failures.is_unguarded(output):
        message = (
            'workers cannot start: the script has no if __name__ == "__main__": guard, so each worker that is spawned '
            f"runs the whole script anew (Python's own explanation is in {session.log})"
        )
        return Cause(failures.NO_MAIN_GUARD, message, failures.GUARD_HINT)
    exception, code = find_exception(output), session.exit_code or 0
    if exception is None:
        last = last_words(output)
        texts, words, number = [last], f"its last line: {last}" if last else None, 0
    else:
        texts, words = [exception.text, *reversed(exception.before)], exception.in_words(os.getcwd())
        number = exception.signal or 0
    number = number or (-code if code < 0 else max(0, code - _BY_SIGNAL))
    known = failures.recognise(texts)
    workers = next(filter(None, map(find_workers_signal, texts)), session.worker_signal)
    if workers is not None:
        number = workers
        if words is not None and not any(map(find_workers_signal, texts[:1])):
            words = f"{words}; a loader worker was killed by {name_signal(workers)}"
    if number and (known is None or known[0] in ("crashed", "killed")):
        kind, hint = failures.from_signal(number, session.oom_kills.count_new())
    else:
        kind, hint = ("crashed", None) if known is None else known
    return Cause(kind, words, hint, raised=exception is not None)
