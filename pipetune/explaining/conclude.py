"""What the measured parts amount to. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pipetune.datasets.index import ImageSet
from pipetune.explaining.costs import closure, parts_of, stage_costs
from pipetune.explaining.subject import Subject
from pipetune.explaining.subset import FEW_IMAGES
from pipetune.explaining.verdict import Facts, judge
from pipetune.records.explanation import COLD, DECODE, STAGES, STORAGE, TRANSFORM, WITH_ACCELERATOR, Explanation, Part
from pipetune.records.sweep import Outcome
from pipetune.registry import USER, loader_for
from pipetune.search.uncertainties import about_other_processes
from pipetune.units import format_bytes, format_share

#: Warnings of single measurements that are repeated, one of each kind.
_MOST_WARNINGS = 4
_ANY_NUMBER = re.compile(r"[-+]?[0-9][0-9.,]*")
#: Stages whose sum differs from the whole loader by more than this share do not close.
CLOSES = 0.10


def conclude(
    outcomes: Sequence[Outcome], *, subject: Subject, subset: ImageSet | None, cold: bool
) -> Explanation | None:  # fmt: skip
    """The explanation; ``None``: nothing was measured of the loader.

    Args:
        subset: the images that the stages were measured on.
        cold: storage was to be measured.
    """
    parts = parts_of(outcomes)
    candidate = subject.candidate
    stages = stage_costs(outcomes, parts, in_place=candidate.in_place)
    if not stages:
        return None
    facts = Facts(
        candidate=candidate, parts=parts, stages=stages, usable_cores=subject.usable_cores,
        mean_bytes=subject.images.mean_bytes, from_storage=subject.workload.cache == "cold",
        ranks=subject.workload.ranks, swept=subject.swept,
    )  # fmt: skip
    verdict = judge(facts)
    closes = closure(parts)
    return Explanation(
        candidate=candidate, parts=parts, stages=stages, closes_frac=closes, bound_by=verdict.bound_by,
        bound_stage=verdict.bound_stage, sentence=verdict.sentence, evidence=verdict.evidence,
        remedies=verdict.remedies,
        notes=(*subject.notes, *_notes(outcomes, parts, subject, subset, closes, cold=cold)),
    )  # fmt: skip


def _notes(
    outcomes: Sequence[Outcome], parts: Sequence[Part], subject: Subject, subset: ImageSet | None,
    closes: float | None, *, cold: bool,
) -> Iterator[str]:  # fmt: skip
    names = {part.name for part in parts}
    if closes is None:
        yield "the stages could not be compared with the whole loader beside the accelerator, which was not measured"
    elif abs(closes) > CLOSES:
        more = "more" if closes > 0 else "less"
        yield (
            f"the stages do not add up: together they take {format_share(abs(closes))} {more} CPU time than the whole "
            "loader beside the accelerator did; measure longer with --seconds, or when the machine is quiet"
        )
    apart = next((outcome.failure for outcome in outcomes if _cannot_divide(outcome)), None)
    if apart is not None:
        yield f"not all stages can be measured apart: {apart.message}"
    elif loader_for(subject.candidate).name != USER and loader_for(subject.candidate).has_decoder:
        yield f"the stages of {subject.candidate.backend} cannot be measured apart"
    elif DECODE in names and TRANSFORM not in names and not _failed(outcomes, TRANSFORM):
        yield f"{subject.candidate.backend} decodes and transforms in one go: both are stated together"
    if subset is not None and len(subset.images) < FEW_IMAGES:
        yield f"the stages were measured on {len(subset.images)} images only, as many as fit into memory decoded"
    in_memory = subject.images.total_bytes
    if cold and COLD in names and in_memory and subject.workload.cache == "warm":
        yield (
            f"files come from storage in the first epoch, and in later ones where the {format_bytes(in_memory)} of all "
            "files that are used do not stay in memory"
        )
    yield from _doubts(outcomes)
    failed = [outcome for outcome in outcomes if outcome.failure is not None and not _cannot_divide(outcome)]
    for name in dict.fromkeys(outcome.part for outcome in failed):
        failure = next(outcome.failure for outcome in outcomes if outcome.part == name and outcome.failure is not None)
        if name in (COLD, STORAGE) and failure.kind == "too_short":
            yield f"{name} was not measured: all files are read before a rate is known; a larger data set would do"
        elif name != WITH_ACCELERATOR or name not in names:
            yield f"{name} was not measured: {failure.message}"


def _doubts(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Warnings of single measurements, each once, and load of other processes."""
    seen: dict[str, str] = {}
    for outcome in outcomes:
        for warning in outcome.measurement.warnings if outcome.measurement else ():
            seen.setdefault(_ANY_NUMBER.sub("", warning), f"{outcome.part}: {warning}")
    yield from list(seen.values())[:_MOST_WARNINGS]
    yield from about_other_processes(outcomes)


def _cannot_divide(outcome: Outcome) -> bool:
    """Its loader has no seam before this stage."""
    return outcome.failure is not None and outcome.failure.kind == "usage" and outcome.part in STAGES


def _failed(outcomes: Sequence[Outcome], name: str) -> bool:
    return any(outcome.part == name and outcome.failure is not None for outcome in outcomes)
