"""Measures one candidate in a child process of its own, with a time limit, and returns its :class:`Outcome`.

This is the parent's side: it never imports the child, a backend or torch.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf

from pipetune import registry
from pipetune.candidates import allocators
from pipetune.datasets.index import read_index
from pipetune.errors import Interrupted
from pipetune.measure import failures, page_cache, wire
from pipetune.measure.conditions import Conditions, Live
from pipetune.measure.phases import OVERTIME, Question
from pipetune.measure.ranks import summarise_ranks
from pipetune.measure.recording import Recording
from pipetune.measure.session import Session
from pipetune.measure.summary import TooShort
from pipetune.processes.signals import defer_signals, raise_if_lost
from pipetune.records.sweep import Candidate, Failure, Measurement, Outcome
from pipetune.sampler.other_processes import CpuTimes, busiest_others, cpu_times
from pipetune.stats.ceilings import limit_goodput

__all__ = ["Conditions", "Live", "find_bad_images", "measure"]

#: Time that a child may take besides the warm-up and the timed phase: imports, model, first batch, end (s).
_ALLOWANCE_S = 120.0
#: Time that compiling the model may take besides (s): ResNet-18 took 53 s on a core that others used, too.
_COMPILE_S = 600.0
#: Time that a child may take per image that is tried (s).
_CHECK_ALLOWANCE_S = 1.0
#: Whatever is left of a time budget, bad images are looked for this long (s).
_LEAST_CHECK_S = 10.0
_FREE_SOMETHING = "free some memory, processes or file descriptors (ulimit -u, ulimit -n)"


def measure(
    candidate: Candidate, role: str, conditions: Conditions, *, attempt: int = 1, ceiling: Measurement | None = None,
    run_noise: float = 0.0, question: Question | None = None, on_live: Callable[[Live], None] = lambda live: None,
) -> tuple[Outcome, Recording]:  # fmt: skip
    """Measure one candidate once. Whatever goes wrong in the child becomes a ``Failure``; only pipetune's bugs raise.

    Args:
        question: what the measurement has to decide; unless given, the timed phase has its set length.

    Raises:
        KeyboardInterrupt, Interrupted: pipetune was asked to stop before the child had its result; it has ended by
            then. With a result that is in :attr:`Recording.stopped`, to be raised once the outcome has been kept.
    """
    started, began = time.time(), time.monotonic()
    recording = Recording()
    failure = _equalise_cache(conditions, recording, on_live)
    if failure is None:
        if conditions.on_ready is not None:
            conditions.on_ready()
        workload = conditions.workload
        once_s = _ALLOWANCE_S + (_COMPILE_S if workload.compiled else 0.0)
        allowed_s = once_s + 2 * (workload.warmup_limit_s + OVERTIME * workload.seconds)
        shape = None if ceiling is None else ceiling.batch_shape
        request = wire.Request(
            candidate=candidate, workload=workload, role=role, question=question, shape=shape, stages=conditions.stages
        )
        others, since = _cpu_times(), time.monotonic()
        limit_s = conditions.timeout_s or allowed_s
        try:
            failure = _run_child(candidate, request, conditions, recording, on_live, limit_s)
        except (KeyboardInterrupt, Interrupted) as stop:
            if not all(one.result for one in recording.of_all_ranks):
                raise
            recording.stopped = stop
        with contextlib.suppress(OSError):
            recording.others = busiest_others(others, time.monotonic() - since)
    measurement = None
    if failure is None and not all(
        one.first_batch and "window_batches" in one.result for one in recording.of_all_ranks
    ):
        failure = failures.garbled("timed", "it lacks messages that come before the result", "")
    if failure is None:
        try:
            measurement = summarise_ranks(
                recording, accelerator_kind=conditions.workload.accelerator.kind,
                ceiling=ceiling, run_noise=run_noise, device_noise=conditions.device_noise,
            )  # fmt: skip
            measurement = limit_goodput(measurement)
        except ArithmeticError as error:  # steps without length, say
            failure = failures.garbled("timed", f"its steps cannot be right: {error}", "")
        except TooShort as error:
            failure = Failure(kind="too_short", phase="timed", message=str(error),
                              hint="use more images, a smaller --batch-size or fewer --seconds")  # fmt: skip
    outcome = Outcome(
        candidate=candidate, role=role, attempt=attempt, started_unix_s=started, wall_s=time.monotonic() - began,
        measurement=measurement, failure=failure, forked=recording.forked,
    )  # fmt: skip
    return outcome, recording


def _cpu_times() -> CpuTimes:
    try:
        return cpu_times()
    except (OSError, ImportError):  # no file descriptor is left
        return {}


def find_bad_images(
    candidate: Candidate, conditions: Conditions, *, on_live: Callable[[Live], None] = lambda live: None,
    most_s: float = inf,
) -> dict[int, str]:  # fmt: skip
    """Decode every image with the candidate's backend, in a child: position -> why it does not decode.

    If the child fails before it is done, or ``most_s`` (s) are over, the result is what it found until then.

    Raises:
        KeyboardInterrupt, Interrupted: pipetune was asked to stop; the child has ended by then.
    """
    recording = Recording()
    conditions = replace(conditions, workload=replace(conditions.workload, ranks=1))  # each image once
    request = wire.Request(candidate=candidate, workload=conditions.workload, role=wire.CHECK)
    images = len(read_index(conditions.workload.index_path).images)  # of a few shards there may be many
    limit_s = min(_CHECK_ALLOWANCE_S * max(100, images), max(most_s, _LEAST_CHECK_S))
    _run_child(candidate, request, conditions, recording, on_live, limit_s)
    return recording.bad_images


def _equalise_cache(conditions: Conditions, recording: Recording, on_live: Callable[[Live], None]) -> Failure | None:
    if not conditions.paths:
        recording.notes.append(
            "the page cache was left as it is, because the files that your loader reads are not known"
        )
        return None
    on_live(Live(phase="page cache"))
    try:
        state = page_cache.equalise(conditions.paths, conditions.workload.cache)
    except RuntimeError as error:  # no thread can be started
        return Failure(kind="spawn", phase="spawn", message=f"cannot read the images: {error}", hint=_FREE_SOMETHING)
    except OSError as error:
        message = f"cannot read {error.filename!r}: {error.strerror}"
        hint = "the data set changed during the sweep; start again"
        return Failure(kind="dataset_changed", phase="spawn", message=message, hint=hint)
    recording.resident_frac = state.resident_frac
    if state.note:
        recording.notes.append(state.note)
    return None


def _run_child(
    candidate: Candidate, request: wire.Request, conditions: Conditions, recording: Recording,
    on_live: Callable[[Live], None], limit_s: float,
) -> Failure | None:  # fmt: skip
    try:
        variables = allocators.environment_of(candidate.allocator, os.environ)
    except ValueError as error:
        return Failure(kind="not_installed", phase="spawn", message=str(error), hint=allocators.INSTALL)
    raise_if_lost()
    asked_ns = time.monotonic_ns()
    with defer_signals() as deferred:
        session = Session(recording, conditions, on_live, deferred)
        try:
            session.start(variables, registry.side_folder(registry.find_backend(candidate.backend)))
            recording.forked = session.forked
            servers = () if conditions.servers is None else conditions.servers.pids
            # A new process takes seconds to begin, and reads the machine's speed itself.
            speed = conditions.speed_before if session.forked else None
            before = None if speed is None else (speed.per_second, speed.per_cpu_second)
            session.send(wire.encode_request(replace(request, servers=servers, speed_before=before, asked_ns=asked_ns)))
            return session.confirmed(session.follow(limit_s))
        except OSError as error:
            message = f"cannot start a process: {error.strerror}"
            return Failure(kind="spawn", phase="spawn", message=message, hint=_FREE_SOMETHING)
        finally:
            session.close()
