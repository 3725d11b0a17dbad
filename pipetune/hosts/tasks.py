"""What host 0 asks of the others, and what they answer, as JSON can hold it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pipetune.measure.conditions import Conditions
from pipetune.measure.ranks import common_time
from pipetune.measure.recording import Recording
from pipetune.records.sweep import Candidate, Measurement, Outcome, Workload, from_dict, to_dict


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One candidate that all hosts measure at the same time."""

    candidate: Candidate
    role: str
    attempt: int
    workload: Workload
    """That of host 0, whose index is a file there; each host has its own."""
    ceiling: Measurement | None
    run_noise: float
    timeout_s: float | None
    new_process: bool
    device_noise: float | None
    index: int
    """Number of the index of images that is meant; it grows where images that do not decode have been replaced."""


def task_of(
    candidate: Candidate, role: str, conditions: Conditions, attempt: int, ceiling: Measurement | None,
    run_noise: float, index: int,
) -> Task:  # fmt: skip
    """What :func:`pipetune.measure.harness.measure` is given, for other hosts."""
    return Task(
        candidate=candidate, role=role, attempt=attempt, workload=conditions.workload, ceiling=ceiling,
        run_noise=run_noise, timeout_s=conditions.timeout_s, new_process=conditions.new_process,
        device_noise=conditions.device_noise, index=index,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a task on one host."""

    outcome: Outcome
    timed_from_s: float | None
    """When its timed phase began, in seconds since all hosts began the task at the same moment; ``None``: it has
    none."""
    timed_until_s: float | None
    steps_s: tuple[float, ...] = ()
    """How long each step of its first rank took; none where the ranks of a host do not wait for each other either."""
    steps_from_s: float = 0.0
    """When the first of them began; as ``timed_from_s``."""


def answer_of(outcome: Outcome, recording: Recording, began_ns: int, *, in_step: bool = True) -> Answer:
    """A host's answer.

    Args:
        began_ns: when the hosts began together (monotonic ns of this host).
        in_step: the ranks wait for each other at the end of each step.
    """
    if outcome.measurement is None:
        return Answer(outcome=outcome, timed_from_s=None, timed_until_s=None)
    from_ns, until_ns = common_time(recording.of_all_ranks)
    ends_ns = [step.t_end_ns for step in recording.timed if from_ns <= step.t_end_ns <= until_ns] if in_step else []
    return Answer(
        outcome=outcome, timed_from_s=(from_ns - began_ns) / 1e9, timed_until_s=(until_ns - began_ns) / 1e9,
        steps_s=tuple((end - before) / 1e9 for before, end in pairwise(ends_ns)),
        steps_from_s=(ends_ns[0] - began_ns) / 1e9 if ends_ns else 0.0,
    )  # fmt: skip


def encode(record: Task | Answer) -> dict[str, Any]:
    """As JSON can hold it."""
    return to_dict(record)


def decode_task(data: dict[str, Any]) -> Task:
    """The reverse of :func:`encode`."""
    return from_dict(Task, data)


def decode_answer(data: dict[str, Any]) -> Answer:
    """The same of an answer."""
    return from_dict(Answer, data)


def own_ceiling(ceiling: Measurement | None, host: int) -> Measurement | None:
    """One host's own ceiling, of one that holds all hosts' rates."""
    share = next((one for one in ceiling.hosts if one.host == host), None) if ceiling is not None else None
    if ceiling is None or share is None:
        return ceiling
    part = share.samples_per_s / ceiling.samples_per_s
    ranks = tuple(replace(rank, samples_per_s=part * rank.samples_per_s) for rank in ceiling.ranks)
    return replace(ceiling, samples_per_s=share.samples_per_s, ci95=share.ci95, ranks=ranks, hosts=())
