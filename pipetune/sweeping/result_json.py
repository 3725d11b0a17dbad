"""The JSON of a sweep, as records: what ``--json`` prints and ``result.json`` of a run folder holds.

``python -m pipetune.report.schemas`` makes ``sweep.schema.json`` from these records and their fields' descriptions.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from pipetune.records.ceilings import BatchCeiling
from pipetune.records.edit import Edit
from pipetune.records.script import ScriptSummary
from pipetune.records.shortage import Shortage
from pipetune.records.summaries import DatasetSummary, WorkloadSummary
from pipetune.records.sweep import (
    SCHEMA,
    THOROUGH,
    AcceleratorSpec,
    Candidate,
    Diagnosis,
    Failure,
    Measurement,
    Outcome,
    to_dict,
)
from pipetune.registry import Deviation
from pipetune.search import LeftOut
from pipetune.sweeping.result import SweepResult, deviation_of


@dataclass(frozen=True, kw_only=True)
class OutcomeRow:
    """One candidate, measured once: what it is, and what was measured or why nothing was."""

    key: str
    """Unique per candidate; the name of its timeline's file."""
    candidate: Candidate
    """What was measured."""
    role: str
    """``ceiling`` (replayed batches), ``baseline`` (PyTorch's default, or the user's own loader as it is) or
    ``candidate``."""
    attempt: int
    """2: repeated because the machine changed speed."""
    started_unix_s: float
    """Seconds since 1970."""
    wall_s: float
    """Page cache, process start, imports, warm-up, timed phase and end (s)."""
    block: int = 0
    """Above 0: measured alongside its rivals, in random order, to decide what was undecided; 1, 2 …"""
    forked: bool = False
    """Measured in a fork of a process that had imported torch, or in a script in which others were measured before, and
    not in a new process."""
    why: str | None = None
    """Why it was measured at this point of the search."""
    deviation: Deviation | None = None
    """How far the decoder's pixels are from the reference's; ``None``: it is the reference, or the user's own loader.
    """


@dataclass(frozen=True, kw_only=True)
class FailedRow(OutcomeRow):
    """A candidate that could not be measured."""

    failure: Failure
    """Why nothing was measured."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRow(Measurement, OutcomeRow):
    """A candidate that was measured."""

    diagnosis: Diagnosis | None = None
    """Why the accelerator was idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitCandidate:
    """A candidate that was skipped because the machine lacks the shared memory, memory or open files that it needs."""

    key: str
    """Unique per candidate."""
    candidate: Candidate
    """What was not measured."""
    failure: Failure
    """What is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJson:
    """Result of pipetune sweep (--json, and result.json in the run folder).

    null means not measured, never 0. Times in seconds, sizes in bytes, rates in samples per second, *_pct in 0..100,
    *_frac in shares of the timed phase.
    """

    schema: int = SCHEMA
    """Version of this schema."""
    status: str
    """``target_met``: recommended reaches the target. ``interrupted``: stopped by a signal, the rest holds what was
    measured until then."""
    message: str | None = None
    """Why a sweep failed or was interrupted."""
    target: float
    """Share to reach (0..1)."""
    target_metric: str
    """``goodput``: share of the max ingestion rate; ``nvml``: GPU utilisation / 100."""
    ceiling_samples_per_s: float | None
    """Max ingestion rate G: the accelerator's rate on replayed, already loaded batches."""
    ceiling_ci95: tuple[float, float] | None = None
    """95 % confidence interval of the ceiling."""
    ceiling: OutcomeRow | None = None
    """The measurement of the ceiling, on replayed batches."""
    accelerator: AcceleratorSpec
    """What consumed the batches."""
    dataset: DatasetSummary
    """The images in use."""
    workload: WorkloadSummary
    """What all candidates have in common."""
    host: dict[str, Any]
    """The machine: see :class:`pipetune.machine.host.Host`."""
    ceilings: tuple[BatchCeiling, ...] = ()
    """The max ingestion rate with several batch sizes, ascending (``--ceilings``); empty: with one alone."""
    baseline: OutcomeRow | None
    """What gains are stated against: PyTorch's default (Pillow, num_workers=0), or a script or loader of the user's as
    it is."""
    recommended: OutcomeRow | None
    """The cheapest candidate that meets the target, else the one that comes closest; the baseline, where no change of
    it is proven to be worth it (``edit``)."""
    edit: Edit | None = None
    """The change from the baseline that is recommended; where the baseline is, the most promising one that is not
    proven. null: there is none worth a word, or the baseline was not measured."""
    speedup: float | None
    """Rate of recommended / rate of baseline, side by side where they were measured so."""
    speedup_ci95: tuple[float, float] | None = None
    """95 % confidence interval of the speedup."""
    outcomes: tuple[OutcomeRow, ...]
    """Every measurement in its order, repeats included, the ceiling not among them."""
    does_not_fit: tuple[UnfitCandidate, ...] = ()
    """Candidates skipped because the machine lacked what they need, before the start and whenever their turn came."""
    shortages: tuple[Shortage, ...] = ()
    """What these candidates lack, one for each resource: how much they need, how much there was, and what to do."""
    ties: tuple[str, ...] = ()
    """Keys of candidates that the measurement cannot separate (at 95 %) from the recommended one."""
    doubts: tuple[str, ...] = ()
    """Why another candidate might be the right one; empty: there is no reason to think so."""
    complete: bool = True
    """The search came to its end; false: it was stopped, or its time was over."""
    effort: str = THOROUGH
    """How far the search went: quick, normal or thorough."""
    ended_because: str | None = None
    """Why it would go on with more effort; null: it was thorough, or did not come to its end."""
    script: ScriptSummary | None = None
    """The user's own training script, where its loader was tuned."""
    left_out: tuple[LeftOut, ...] = ()
    """Candidates of the grid that were not measured, by reason."""
    reused: int = 0
    """Outcomes taken over from the interrupted run that --resume resumed; the ceiling counts as one."""
    seconds: float
    """Duration of the whole sweep (s)."""


def to_json(result: SweepResult) -> dict[str, Any]:
    """The object that ``--json`` prints, in plain JSON types."""
    ceiling = result.ceiling.measurement if result.ceiling else None
    return to_dict(SweepJson(
        status=result.status, message=result.message, target=result.goal.target, target_metric=result.goal.metric,
        ceiling_samples_per_s=ceiling.samples_per_s if ceiling else None,
        ceiling_ci95=ceiling.ci95 if ceiling else None,
        ceiling=_row(result, result.ceiling), ceilings=result.ceilings, accelerator=result.accelerator,
        dataset=result.dataset,
        workload=result.workload, host=result.host, baseline=_row(result, result.baseline),
        recommended=_row(result, result.recommended), edit=result.edit,
        speedup=result.speedup, speedup_ci95=result.speedup_ci95,
        outcomes=tuple(_row_of(result, outcome) for outcome in result.outcomes),
        does_not_fit=tuple(
            UnfitCandidate(key=candidate.key, candidate=candidate, failure=failure)
            for candidate, failure in result.does_not_fit
        ),
        shortages=result.shortages,
        ties=result.ties, doubts=result.doubts, complete=result.complete, left_out=result.left_out,
        effort=result.goal.effort, ended_because=result.ended_because, script=result.script,
        reused=result.reused, seconds=result.seconds,
    ))  # fmt: skip


def _row(result: SweepResult, outcome: Outcome | None) -> OutcomeRow | None:
    return None if outcome is None else _row_of(result, outcome)


def _row_of(result: SweepResult, outcome: Outcome) -> OutcomeRow:
    row: dict[str, Any] = {
        "key": outcome.candidate.key, "candidate": outcome.candidate, "role": outcome.role,
        "attempt": outcome.attempt, "started_unix_s": outcome.started_unix_s, "wall_s": outcome.wall_s,
        "block": outcome.block, "forked": outcome.forked, "why": outcome.why,
        "deviation": deviation_of(outcome.candidate),
    }  # fmt: skip
    if outcome.measurement is None:
        assert outcome.failure is not None
        return FailedRow(**row, failure=outcome.failure)
    measured = {field.name: getattr(outcome.measurement, field.name) for field in dataclasses.fields(Measurement)}
    return MeasuredRow(**row, **measured, diagnosis=result.diagnose(outcome))
