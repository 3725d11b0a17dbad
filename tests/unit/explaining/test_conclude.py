from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.datasets.index import ImageSet
from pipetune.explaining.conclude import conclude
from pipetune.explaining.subject import Subject
from pipetune.records.explanation import (
    ACCELERATOR,
    COLD,
    DECODE,
    FETCH,
    STORAGE,
    TRANSFORM,
    WITH_ACCELERATOR,
    Explanation,
)
from pipetune.records.sweep import Candidate, Failure, Outcome
from tests.photo_set import workload
from tests.unit.explaining.facts import workers_bound
from tests.unit.explaining.test_subset import images
from tests.unit.samples import outcome

LOADER = Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64)


def usual(**changes: float) -> list[Outcome]:
    """Parts without warnings, whose files were dropped from memory where they were to be."""
    return [
        replace(one, measurement=replace(one.measurement, warnings=(), cache_resident_frac=0.0, other_cores=0.0))
        for one in workers_bound(**changes)
        if one.measurement is not None
    ]


def failed(part: str, message: str = "it broke", kind: str = "error", block: int = 1) -> Outcome:
    failure = Failure(kind=kind, phase="timed", message=message)
    return replace(outcome(2), part=part, block=block, measurement=None, failure=failure)


def explained(outcomes: list[Outcome], *, few: ImageSet | None = None, **changes: object) -> Explanation:
    known = {"candidate": LOADER, "workload": workload(), "images": images(500), "usable_cores": 4.0}
    subject = Subject(**{**known, **changes})  # type: ignore[arg-type]
    found = conclude(outcomes, subject=subject, subset=few or images(100))
    assert found is not None
    return found


def test_all_of_it() -> None:
    found = explained(usual())
    assert found.bound_by == "workers"
    assert len(found.stages) == 5
    assert found.closes_frac == pytest.approx(1 / 1.01 - 1)
    assert found.evidence
    assert found.remedies
    assert [note for note in found.notes if "epoch" not in note] == []


def test_without_a_stage_there_is_nothing_to_say() -> None:
    only = [one for one in usual() if one.part in (ACCELERATOR, WITH_ACCELERATOR)]
    subject = Subject(candidate=LOADER, workload=workload(), images=images(500), usable_cores=4.0)
    assert conclude(only, subject=subject, subset=images(100)) is None


def test_files_that_stay_in_memory_say_nothing_of_storage() -> None:
    outcomes = [
        replace(one, measurement=replace(one.measurement, cache_resident_frac=1.0))
        if one.part in (COLD, STORAGE) and one.measurement else one
        for one in usual()
    ]  # fmt: skip
    found = explained(outcomes)
    assert found.part(COLD) is None
    assert found.part(STORAGE) is None
    assert not any("storage delivers" in line for line in found.evidence)
    assert [note.split(";")[0] for note in found.notes if "could not be dropped" in note] == [
        "left out: the loader alone, files from storage", "left out: reading files from storage, and nothing else",
    ]  # fmt: skip


def test_stages_that_do_not_add_up_say_so() -> None:
    outcomes = [
        replace(one, measurement=replace(one.measurement, cpu_s_per_1000_samples=1.5))
        if one.part == WITH_ACCELERATOR and one.measurement else one
        for one in usual()
    ]  # fmt: skip
    assert any("the stages do not add up: measured apart they take 33 % less" in n for n in explained(outcomes).notes)


def test_what_failed_is_named_with_its_reason() -> None:
    without = [one for one in usual() if one.part != COLD]
    notes = explained([*without, failed(COLD, "the loader ended after 0 of 3 windows", "too_short")]).notes
    assert any(
        note.startswith("not measured: the loader alone, files from storage; all of them are read") for note in notes
    )
    notes = explained([*usual(), failed(DECODE, "out of memory", block=2)]).notes
    assert "failed in block 2: the loader alone: from decoding on: out of memory" in notes
    notes = explained([one for one in usual() if one.part != DECODE] + [failed(DECODE)]).notes
    assert "not measured: the loader alone: from decoding on: it broke" in notes


def test_what_cannot_be_divided_says_why() -> None:
    own = Candidate(backend="own", num_workers=2, prefetch_depth=2, batch_size=64)
    outcomes = [one for one in usual() if one.part not in (DECODE, TRANSFORM)]
    outcomes += [failed(name, "Tensors does all in one go", "usage") for name in (TRANSFORM, DECODE)]
    notes = explained(outcomes, candidate=own).notes
    assert "not all stages can be measured apart: Tensors does all in one go" in notes
    assert not any("not measured:" in note for note in notes)
    fused = replace(LOADER, backend="opencv-reduced")
    outcomes = [one for one in usual() if one.part != TRANSFORM]
    assert any("decodes and transforms in one go" in note for note in explained(outcomes, candidate=fused).notes)
    # Stopped before its turn came, which is another matter.
    assert not any("in one go" in note for note in explained(outcomes).notes)


def test_what_was_stopped_says_so() -> None:
    subject = Subject(candidate=LOADER, workload=workload(), images=images(500), usable_cores=4.0)
    found = conclude(usual(), subject=subject, subset=images(100), stopped="interrupted")
    assert found is not None
    assert found.notes[0] == "it was stopped (interrupted): this rests on what was measured until then"


def test_warnings_are_repeated_one_of_each_kind() -> None:
    outcomes = [
        replace(one, measurement=replace(one.measurement, warnings=(f"not steady after {number} batches",)))
        for number, one in enumerate(usual()) if one.measurement
    ]  # fmt: skip
    assert len([note for note in explained(outcomes).notes if "not steady" in note]) == 1


def test_few_images_are_mentioned() -> None:
    assert any("measured on 3 images only" in note for note in explained(usual(), few=images(3)).notes)
    assert not any("images only" in n for n in explained(usual(), few=images(3), images=images(3)).notes)


def test_without_the_accelerator_nothing_is_named() -> None:
    found = explained([one for one in usual() if one.part in (FETCH, WITH_ACCELERATOR)])
    assert found.bound_by == "unknown"
    assert found.remedies == ()
