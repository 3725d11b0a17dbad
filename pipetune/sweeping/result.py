"""What a sweep found, as one object: for the terminal, for ``--json`` and for the run folder. Pure.

The JSON is described by ``sweep.schema.json`` beside this file (JSON Schema 2020-12), and checked against it in the
tests. Absent measurements are ``null``, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipetune import search
from pipetune.augmentation.recipes import BASIC
from pipetune.candidates.space import Space
from pipetune.diagnosis.candidate import counted_cores_of, diagnosis_of
from pipetune.errors import UsageError
from pipetune.records.ceilings import BatchCeiling
from pipetune.records.edit import Edit
from pipetune.records.script import ScriptSummary
from pipetune.records.shortage import Shortage
from pipetune.records.summaries import DatasetSummary, WorkloadSummary
from pipetune.records.sweep import AcceleratorSpec, Candidate, Diagnosis, Failure, Goal, Measurement, Outcome
from pipetune.registry import CROP_DECODER, Deviation, find_backend
from pipetune.stats.ceilings import restate
from pipetune.stats.intervals import differ
from pipetune.sweeping.ceilings import ceilings_by_batch
from pipetune.sweeping.movable_recipe import find_movable_recipe
from pipetune.sweeping.shortages import find_shortages
from pipetune.units import format_rate

#: A change of the accelerator's own pace by less than this share is not worth a word.
_SAME_PACE = 0.02
#: A GPU that is at its power limit for this part of the time (%) is said to be.
_CAPPED_PCT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """A finished or interrupted sweep."""

    status: str
    """``target_met``, ``target_missed``, ``interrupted`` or ``failed``."""
    goal: Goal
    accelerator: AcceleratorSpec
    dataset: DatasetSummary
    workload: WorkloadSummary
    host: dict[str, Any]
    usable_cores: float
    ceiling: Outcome | None
    baseline: Outcome | None
    recommended: Outcome | None
    speedup: float | None
    """Recommended rate / baseline rate, side by side where they were measured so."""
    speedup_ci95: tuple[float, float] | None
    outcomes: tuple[Outcome, ...]
    """In the order of measurement, the ceiling not among them."""
    ranking: tuple[Outcome, ...]
    """The newest outcome of each candidate, fastest first, failures last."""
    seconds: float
    reused: int = 0
    """Outcomes that an earlier, interrupted run of this sweep had measured."""
    does_not_fit: tuple[tuple[Candidate, Failure], ...] = ()
    """Candidates that were skipped because the machine lacks what they need."""
    shortages: tuple[Shortage, ...] = ()
    """What these candidates lack, one for each resource."""
    message: str | None = None
    """Why a failed sweep failed."""
    ties: tuple[str, ...] = ()
    """Keys of candidates that tie with the recommended one."""
    doubts: tuple[str, ...] = ()
    """Why another candidate might be the right one."""
    left_out: tuple[search.LeftOut, ...] = ()
    """Candidates of the grid that were not measured, and why."""
    complete: bool = True
    """The search came to its end; otherwise it was stopped, or its time was over."""
    untuned_name: str = "PyTorch's default"
    """What the baseline is called."""
    script: ScriptSummary | None = None
    """The user's own script, whose loader was tuned; ``None``: loaders of pipetune's were."""
    ceilings: tuple[BatchCeiling, ...] = ()
    """The max ingestion rate with several batch sizes, ascending; ``()``: with the candidates' alone."""
    ended_because: str | None = None
    """Why the search would go on with more effort; ``None``: it was thorough, or did not end."""
    edit: Edit | None = None
    """The change from the baseline that is recommended; where the baseline stays as it is, the most promising one that
    is not proven. ``None``: there is none worth a word."""

    @property
    def stays(self) -> bool:
        """Whether the baseline stays as it is because no change of it is proven to be worth it."""
        is_baseline = self.recommended is not None and self.recommended is self.baseline
        return is_baseline and self.edit is not None and not self.edit.is_proven

    @property
    def counted_cores(self) -> float | None:
        """Cores of the host whose load was measured; ``None``: not known."""
        return counted_cores_of(self.host)

    def movable_recipe(self, candidate: Candidate) -> str | None:
        """See :func:`pipetune.sweeping.movable_recipe.find_movable_recipe`."""
        return find_movable_recipe(candidate, self.workload.get("augment", BASIC), self.accelerator, self.ranking)

    def diagnose(self, outcome: Outcome) -> Diagnosis | None:
        """Why the accelerator was idle under a candidate; ``None``: it was not measured."""
        movable = self.movable_recipe(outcome.candidate)
        target = self.goal.target if self.goal.metric == "goodput" else None
        return diagnosis_of(outcome, self.usable_cores, self.counted_cores, movable, target)


def conclude(
    outcomes: Sequence[Outcome], *, goal: Goal, space: Space, accelerator: AcceleratorSpec, dataset: DatasetSummary,
    workload: WorkloadSummary, host: dict[str, Any], usable_cores: float, seconds: float,
    grid: bool = False, reused: int = 0, does_not_fit: tuple[tuple[Candidate, Failure], ...] = (),
    stopped: str | None = None, message: str | None = None, complete: bool | None = None,
    script: ScriptSummary | None = None,
) -> SweepResult:  # fmt: skip
    """What the outcomes amount to.

    Args:
        grid: everything was to be measured.
        stopped: ``interrupted`` or ``failed`` when the sweep did not come to its end.
        complete: whether the search came to its end, as the sweep knew it; ``None``: derived from the outcomes.
    """
    outcomes = restate(outcomes)
    ceilings = [outcome for outcome in outcomes if outcome.is_ceiling and outcome.measurement]
    ceiling = next((outcome for outcome in reversed(outcomes) if outcome.is_ceiling), None)
    ceiling = ceilings[-1] if ceilings else ceiling
    newest = search.latest(outcomes)
    baseline = next((outcome for outcome in newest.values() if outcome.role == "baseline"), None)
    candidates = [outcome for outcome in outcomes if outcome.role != "ceiling"]
    ended = search.is_exhausted(space, candidates, goal, grid=grid) if complete is None else complete
    recommendation = search.recommend(candidates, goal, space)
    choice, edit = (None, None) if recommendation is None else (recommendation.choice, recommendation.edit)
    # As it was measured, not as it would be at another speed of the machine.
    recommended = newest.get(choice.outcome.candidate.key) if choice else None
    met = (
        recommended is not None and recommended.measurement is not None and search.meets(recommended.measurement, goal)
    )
    if stopped is None and recommended is None:
        measured = any(outcome.measurement for outcome in newest.values())
        too_large = "all that was measured takes more memory than --max-ram grants"
        stopped, message = "failed", message or (too_large if measured else "no candidate could be measured")
    not_baseline = recommended is not None and recommended is not baseline
    speedup, speedup_ci95 = _speedup(baseline, recommended, edit)
    return SweepResult(
        status=stopped or ("target_met" if met else "target_missed"), goal=goal, accelerator=accelerator,
        dataset=dataset, workload=workload, host=host, usable_cores=usable_cores, ceiling=ceiling, baseline=baseline,
        recommended=recommended, edit=edit, speedup=speedup, speedup_ci95=speedup_ci95,
        outcomes=tuple(outcome for outcome in outcomes if outcome.role != "ceiling"),
        ranking=tuple(sorted(newest.values(), key=_rank)), seconds=seconds, reused=reused, does_not_fit=does_not_fit,
        shortages=find_shortages(does_not_fit),
        message=message, script=script, untuned_name=search.untuned_name(space),
        ties=tuple(outcome.candidate.key for outcome in choice.ties) if choice else (),
        doubts=(
            *choice.doubts, *_cut_short(space, candidates, goal, stopped, ended=ended, is_edit=not_baseline),
            *_not_proven(edit, not_baseline, search.untuned_name(space)), *_other_pace(ceilings),
        ) if choice else (),
        ceilings=ceilings_by_batch(outcomes),
        left_out=search.left_out(space, candidates, goal, ended=not grid and ended), complete=ended,
        ended_because=(
            search.ended_because(space, candidates, goal, met=met)
            if ended and not grid and stopped != "interrupted" else None
        ),
    )  # fmt: skip


def _cut_short(
    space: Space, outcomes: Sequence[Outcome], goal: Goal, stopped: str | None, *, ended: bool, is_edit: bool
) -> Iterator[str]:
    """What the time was too short for; a search that was stopped says so itself."""
    if stopped is None and not ended:
        yield (
            "the time was over before the search came to its end, and a candidate that was not tried may be better: "
            "a longer --budget tries more"
        )
    elif stopped is None and is_edit and not search.is_confirmed(space, outcomes, goal):
        yield "it was not measured a second time alongside its rivals and the default"


def _not_proven(edit: Edit | None, not_baseline: bool, untuned_name: str) -> Iterator[str]:
    """A candidate is recommended without proof only where the user's options leave the baseline out."""
    if not_baseline and edit is not None and not edit.is_proven:
        low, high = edit.gain_ci95
        yield f"it is not proven to be faster than {untuned_name} ({low:.2f} to {high:.2f} times), which was left out"


def _other_pace(ceilings: Sequence[Outcome]) -> Iterator[str]:
    """The accelerator itself did not keep its pace: what was measured before is a share of another one."""
    measured = [outcome.measurement for outcome in ceilings if outcome.measurement is not None]
    if len(measured) < 2 or not differ(
        measured[0].samples_per_s, measured[0].ci95, measured[-1].samples_per_s, measured[-1].ci95
    ):
        return
    change = measured[-1].samples_per_s / measured[0].samples_per_s - 1
    if abs(change) < _SAME_PACE:
        return
    yield (
        f"the accelerator itself became {100 * abs(change):.0f} % {'faster' if change > 0 else 'slower'} during the "
        f"sweep ({format_rate(measured[0].samples_per_s)} -> {format_rate(measured[-1].samples_per_s)}"
        f"{_clocks(measured[0], measured[-1])}); candidates "
        "that were not measured again are stated as a share of what it took at first"
    )


def _clocks(first: Measurement, last: Measurement) -> str:
    if first.gpu_clock_mhz is None or last.gpu_clock_mhz is None:
        return ""
    at_limit = ", at its power limit" if (last.gpu_power_capped_pct or 0) > _CAPPED_PCT else ""
    return f"; GPU clock {first.gpu_clock_mhz:.0f} -> {last.gpu_clock_mhz:.0f} MHz{at_limit}"


def deviation_of(candidate: Candidate) -> Deviation | None:
    """How far the candidate's pixels are from Pillow's; ``None``: identical, or unknown (the user's own loader).

    Of a script whose crops are decoded alone, how far they are from the script's own.
    """
    if candidate.decoder == "crop":
        return find_backend(CROP_DECODER).deviation
    try:
        return find_backend(candidate.backend).deviation
    except UsageError:  # of a newer version's run
        return None


def _rank(outcome: Outcome) -> tuple[bool, float]:
    return outcome.measurement is None, -outcome.measurement.samples_per_s if outcome.measurement else 0.0


def _speedup(
    baseline: Outcome | None, recommended: Outcome | None, edit: Edit | None
) -> tuple[float | None, tuple[float, float] | None]:
    """Ratio of the rates, with its interval."""
    if baseline is None or recommended is None or baseline.measurement is None or recommended.measurement is None:
        return None, None
    if recommended.measurement is baseline.measurement:
        return 1.0, (1.0, 1.0)
    assert edit is not None
    return edit.gain, edit.gain_ci95
