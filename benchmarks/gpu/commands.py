"""Programs that a stage starts: within a time limit, with their output in the stage's log."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.bench import ROOT
from benchmarks.gpu.leasing.findings import Findings

#: Between a request to end and the end by force (s): a sweep writes its result meanwhile.
_GRACE_S = 3.0
#: With less time a program is not started (s).
MIN_S = 1.0


class NotDone(Exception):
    """A program did not end in time; the text says which."""


class ProgramFailed(NotDone):
    """A program ended with an exit code that is not 0, or by a signal."""


def report(findings: Findings, what: str, error: NotDone) -> None:
    """Keep why something was not measured: a program that failed is a problem, and time that was short is none."""
    if isinstance(error, ProgramFailed):
        findings.report_problem(f"{what}: {error}")
    else:
        findings.report_unproven(what, str(error))


def run_program(
    findings: Findings,
    module: str,
    *arguments: str,
    limit_s: float,
    on_line: Callable[[Any], None],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run ``python -m MODULE``; each line of JSON that it prints is taken at once.

    Args:
        limit_s: it is ended after this, and when the stage's time is over.
        on_line: takes what the program prints as JSON, line by line. Other lines go to the log.

    Raises:
        NotDone: it did not end in time, or failed.
    """
    command, limit_s = [sys.executable, "-m", module, *arguments], min(limit_s, findings.remaining_s)
    _raise_unless_done(command, limit_s, run_command(findings, command, limit_s, on_line, environment))


def run_pipetune(findings: Findings, *words: str, limit_s: float) -> None:
    """Run ``pipetune``; its output goes to the log.

    Raises:
        NotDone: it did not end in time, or failed.
    """
    command, limit_s = [sys.executable, "-m", "pipetune", *words], min(limit_s, findings.remaining_s)
    _raise_unless_done(command, limit_s, run_command(findings, command, limit_s))


def run_command(
    findings: Findings,
    command: Sequence[str],
    limit_s: float,
    on_line: Callable[[Any], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run a command; its exit code (negative: a signal), or ``None`` where it was ended because it took too long.

    Args:
        on_line: takes each line of JSON that the command prints; ``None``: all lines go to the log.
        environment: further variables.
    """
    limit_s = min(limit_s, findings.remaining_s)
    if limit_s < MIN_S:
        return None
    print(f"$ {' '.join(command[1:])}", flush=True)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=ROOT,
        env=None if environment is None else {**os.environ, **environment},
        start_new_session=True,
    )
    late = threading.Event()
    ended = threading.Event()
    watchdog = threading.Thread(target=_end_late, args=(process, limit_s, ended, late), daemon=True)
    watchdog.start()
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            value = None if on_line is None else _parse(line)
            if value is None or on_line is None:
                print(line, end="", flush=True)
            else:
                on_line(value)
    code = process.wait()
    ended.set()
    with contextlib.suppress(ProcessLookupError):  # what it left in its session
        os.killpg(process.pid, signal.SIGKILL)
    return None if late.is_set() else code


def _raise_unless_done(command: Sequence[str], limit_s: float, code: int | None) -> None:
    name = " ".join(command[2:4])
    if code is None:
        raise NotDone(f"{name} was not done in time (at most {limit_s:.0f} s)")
    if code:
        how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
        raise ProgramFailed(f"{name} ended with {how}: see the stage's log")


def _end_late(process: subprocess.Popen[str], limit_s: float, ended: threading.Event, late: threading.Event) -> None:
    grace_s = min(_GRACE_S, 0.2 * limit_s)
    if ended.wait(limit_s - grace_s):
        return
    late.set()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    if not ended.wait(grace_s):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _parse(line: str) -> Any:
    """The object of a line of JSON; ``None``: it is another line."""
    if not line.startswith("{"):
        return None
    try:
        return json.loads(line)
    except ValueError:
        return None


def print_json(**fields: Any) -> None:
    """What a program of a stage found: one line for :func:`run_program`."""
    print(json.dumps(fields), flush=True)


def now_s() -> float:
    """For spans of time (s)."""
    return time.perf_counter()
