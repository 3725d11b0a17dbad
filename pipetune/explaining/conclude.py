"""What the measured parts amount to. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pipetune.datasets.index import ImageSet
from pipetune.explaining.costs import closure, parts_of, stage_costs
from pipetune.explaining.facts import PARTS, Facts
from pipetune.explaining.parts import augmenting_stages
from pipetune.explaining.remedies import remedies_of
from pipetune.explaining.subject import Subject
from pipetune.explaining.subset import FEW_IMAGES
from pipetune.explaining.verdict import evidence_of, judge, sentence_of
from pipetune.records.explanation import COLD, STAGES, STORAGE, Explanation
from pipetune.records.sweep import Outcome
from pipetune.registry import USER, find_backend, loader_for
from pipetune.search.uncertainties import about_other_processes
from pipetune.units import format_bytes, format_share

#: Warnings of single measurements that are repeated, one of each kind.
_MOST_WARNINGS = 4
_ANY_NUMBER = re.compile(r"[-+]?[0-9][0-9.,]*")
#: CPU times that differ from the whole loader's by more than this share do not close.
CLOSES = 0.10
#: Files of which more than this share is still in the page cache were not read from storage.
_STILL_THERE = 0.05


def conclude(
    outcomes: Sequence[Outcome], *, subject: Subject, subset: ImageSet | None, stopped: str | None = None
) -> Explanation | None:  # fmt: skip
    """The explanation; ``None``: nothing was measured of the loader.

    Args:
        subset: the images that the stages were measured on; ``None``: those of the loader, which are not known.
        stopped: why not all was measured.
    """
    in_memory = _not_dropped(outcomes)
    outcomes = [outcome for outcome in outcomes if outcome.part not in in_memory]
    candidate, workload = subject.candidate, subject.workload
    augmenting = augmenting_stages(candidate, workload.augment)
    stages = stage_costs(outcomes, in_place=candidate.in_place, augmenting=augmenting)
    if not stages:
        return None
    facts = Facts(
        candidate=candidate, parts=parts_of(outcomes), stages=stages, usable_cores=subject.usable_cores,
        mean_bytes=subject.images.mean_bytes, cold=workload.cache == "cold",
        blocking=workload.accelerator.kind == "cpu", ranks=workload.ranks, swept=subject.swept,
    )  # fmt: skip
    verdict = judge(facts)
    closes = closure(outcomes, cold=facts.cold)
    notes = [*subject.notes]
    if stopped is not None:
        notes.append(f"it was stopped ({stopped}): this rests on what was measured until then")
    for name in in_memory:
        notes.append(
            f"left out: {PARTS[name]}; the files could not be dropped from memory, so it says nothing of storage"
        )
    return Explanation(
        candidate=candidate, parts=facts.parts, stages=stages, closes_frac=closes, bound_by=verdict.bound_by,
        bound_stage=verdict.stage, sentence=sentence_of(facts, verdict), evidence=evidence_of(facts),
        remedies=remedies_of(facts, verdict), notes=(*notes, *_notes(outcomes, subject, subset, closes)),
    )  # fmt: skip


def _not_dropped(outcomes: Sequence[Outcome]) -> list[str]:
    """Parts that should have read from storage, and found files in memory."""
    found = []
    for outcome in outcomes:
        m = outcome.measurement
        if outcome.part in (COLD, STORAGE) and m is not None:
            there = m.cache_resident_frac
            if there is None or there > _STILL_THERE:
                found.append(outcome.part)
    return list(dict.fromkeys(found))


def _notes(
    outcomes: Sequence[Outcome], subject: Subject, subset: ImageSet | None, closes: float | None
) -> Iterator[str]:  # fmt: skip
    names = {outcome.part for outcome in outcomes if outcome.measurement is not None}
    if closes is None:
        yield "the stages could not be compared with the whole loader beside the accelerator, which was not measured"
    elif abs(closes) > CLOSES:
        more = "more" if closes > 0 else "less"
        yield (
            f"the stages do not add up: measured apart they take {format_share(abs(closes))} {more} CPU time than the "
            "whole loader beside the accelerator; measure longer with --seconds, or when the machine is quiet"
        )
    yield from _not_apart(outcomes, subject)
    if subset is not None and len(subset.images) < min(FEW_IMAGES, len(subject.images.images)):
        yield f"the stages were measured on {len(subset.images)} images only, as many as may lie in memory decoded"
    size = subject.images.total_bytes
    if COLD in names and size and subject.workload.cache == "warm":
        yield (
            f"files come from storage in the first epoch, and in later ones where the {format_bytes(size)} of all "
            "files that are used do not stay in memory"
        )
    yield from _failures(outcomes)
    yield from _doubts(outcomes)


def _not_apart(outcomes: Sequence[Outcome], subject: Subject) -> Iterator[str]:
    """Which stages are stated together, and why."""
    backend, loader = subject.candidate.backend, loader_for(subject.candidate)
    reason = next(
        (outcome.failure.message for outcome in outcomes if outcome.failure and _cannot_divide(outcome)), None
    )
    if reason is not None:
        yield f"not all stages can be measured apart: {reason}"
    elif loader.name != USER and loader.has_decoder:
        yield f"the stages of {backend} cannot be measured apart"
    elif loader.name != USER and not find_backend(backend).decodes_whole:
        yield f"{backend} decodes and transforms in one go: both are stated together"


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    measured = {outcome.part for outcome in outcomes if outcome.measurement is not None}
    for outcome in outcomes:
        failure, name = outcome.failure, outcome.part
        if failure is None or _cannot_divide(outcome):
            continue
        words = PARTS.get(name or "", name)
        if name in measured:
            yield f"failed in block {outcome.block}: {words}: {failure.message}"
        elif name in (COLD, STORAGE) and failure.kind == "too_short":
            yield f"not measured: {words}; all of them are read before a rate is known, a larger data set would do"
        else:
            yield f"not measured: {words}: {failure.message}"


def _doubts(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Warnings of single measurements, one of each kind, and load of other processes."""
    seen: dict[str, str] = {}
    for outcome in outcomes:
        # Files that are read for the first time come as they come.
        counts = outcome.measurement is not None and outcome.part not in (COLD, STORAGE)
        for warning in outcome.measurement.warnings if outcome.measurement and counts else ():
            seen.setdefault(_ANY_NUMBER.sub("", warning), warning)
    yield from list(seen.values())[:_MOST_WARNINGS]
    yield from about_other_processes(outcomes)


def _cannot_divide(outcome: Outcome) -> bool:
    """Its loader has no seam before this stage."""
    return outcome.failure is not None and outcome.failure.kind == "usage" and outcome.part in STAGES
