from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.explaining.costs import parts_of, stage_costs
from pipetune.explaining.facts import Facts, name_of
from pipetune.explaining.remedies import remedies_of
from pipetune.explaining.verdict import (
    ACCELERATOR_BOUND,
    CORES,
    HANDING_OVER,
    LIMITS,
    RESTARTS,
    STORAGE_BOUND,
    TRANSFER_BOUND,
    UNEVEN,
    UNKNOWN,
    WAITS,
    WORKERS,
    Verdict,
    evidence_of,
    judge,
    sentence_of,
)
from pipetune.records.explanation import (
    ACCELERATOR,
    AUGMENT,
    AUGMENTING,
    COLD,
    DECODE,
    FETCH,
    HAND_OVER,
    NORMALISE,
    ON_DEVICE,
    STAGES,
    STORAGE,
    TRANSFER,
    TRANSFORM,
    WITH_ACCELERATOR,
)
from pipetune.records.sweep import Candidate, Outcome
from tests.unit.explaining.facts import measured, workers_bound
from tests.unit.samples import outcome

LOADER = Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64)


def facts(outcomes: list[Outcome], **changes: object) -> Facts:
    known = {
        "candidate": LOADER, "parts": parts_of(outcomes), "stages": stage_costs(outcomes, in_place=False),
        "usable_cores": 4.0, "mean_bytes": 100_000.0, "cold": False,
    }  # fmt: skip
    return Facts(**{**known, **changes})  # type: ignore[arg-type]


def with_cost(outcomes: list[Outcome], **costs: float) -> list[Outcome]:
    """The same, with parts of other CPU times per 1000 samples (s)."""
    found = []
    for one in outcomes:
        m = one.measurement
        assert m is not None
        if one.part in costs:
            cpu = costs[one.part]
            m = replace(m, cpu_s_per_1000_samples=cpu, cores_used=cpu * m.samples_per_s / 1000)
        found.append(replace(one, measurement=m))
    return found


class Found:
    """All that is said of some facts."""

    def __init__(self, given: Facts) -> None:
        verdict = judge(given)
        self.bound_by, self.bound_stage = verdict.bound_by, verdict.stage
        self.sentence, self.evidence = sentence_of(given, verdict), evidence_of(given)
        self.remedies = remedies_of(given, verdict)


def found_of(outcomes: list[Outcome], **changes: object) -> Found:
    return Found(facts(outcomes, **changes))


def test_busy_workers_beside_free_cores() -> None:
    found = found_of(workers_bound())
    assert (found.bound_by, found.bound_stage) == (WORKERS, DECODE)
    assert "all 2 workers are busy, mostly with decoding, and cores are free" in found.sentence
    assert "40 % of the accelerator's rate" in found.sentence
    (more, reused, cores) = found.remedies
    # 0.1 of 1.0 ms are collating and handing over.
    assert reused.change.startswith("batches in memory that is used again")
    assert reused.samples_per_s == pytest.approx(2000 / 0.9, rel=0.01)
    # 1 ms of CPU per image, 4 cores: no more than 4,000 images/s, which the launching of steps lowers a little.
    assert more.change == "num_workers 2 -> 4"
    assert more.samples_per_s == pytest.approx(4000, rel=0.01)
    assert cores.change.startswith("5 cores in place of 4")  # 5,000/s at 1 ms each
    assert cores.samples_per_s == 5000


def augmenting(place: str = "worker") -> Found:
    """Of a loader that takes 0.6 of 1 ms for augmenting, which the accelerator does in 0.05 ms."""
    outcomes = [
        *workers_bound(),
        measured(AUGMENT, 3000.0, 0.75),
        measured(NORMALISE, 15_000.0, 0.15),
        measured(ON_DEVICE, 4000.0, 0.001),
    ]
    costs = with_cost(outcomes, decode=0.97, transform=0.8)
    return Found(
        facts(
            costs,
            candidate=replace(LOADER, transforms_on=place),
            stages=stage_costs(costs, in_place=False, augmenting=AUGMENTING),
            usable_cores=2.0,
        )
    )


def test_augmenting_can_be_left_to_the_device() -> None:
    found = augmenting()
    assert (found.bound_by, found.bound_stage) == (CORES, AUGMENT)
    assert "mostly with augmenting" in found.sentence
    remedy = next(one for one in found.remedies if "transforms_on=device" in one.change)
    # 0.4 ms on 2 cores are 5,000/s; the accelerator takes 0.2 + 0.05 ms.
    assert remedy.samples_per_s == pytest.approx(4000, rel=0.01)
    assert "augmenting on the device would take 0.05 ms an image" in found.evidence
    assert "augmenting on the device takes 0.05 ms an image" in augmenting("device").evidence


def test_the_accelerator_takes_less_where_it_augments() -> None:
    outcomes = [*workers_bound(), measured(ON_DEVICE, 4000.0, 0.001)]
    assert facts(outcomes).demand == 5000
    assert facts(outcomes, candidate=replace(LOADER, transforms_on="device")).demand == pytest.approx(4000)


def test_cropping_is_named_without_normalising_where_that_is_apart() -> None:
    outcomes = [*workers_bound(), measured(AUGMENT, 8000.0, 0.25), measured(NORMALISE, 15_000.0, 0.15)]
    stages = stage_costs(outcomes, in_place=False, augmenting=AUGMENTING)
    assert name_of((TRANSFORM,), stages) == "cropping and resizing"
    assert name_of((TRANSFORM,)) == "cropping, resizing and normalising"
    assert name_of((AUGMENT, NORMALISE)) == "augmenting, normalising"
    assert name_of(tuple(stage for stage in STAGES if stage not in AUGMENTING)) == "loading"


def test_no_free_core_is_left() -> None:
    found = found_of(workers_bound(), usable_cores=2.0)
    assert (found.bound_by, found.bound_stage) == (CORES, DECODE)
    assert "all 2 usable ones are busy, mostly with decoding" in found.sentence
    assert found.remedies[-1].change == "5 cores in place of 2, and as many workers"


def test_the_training_step_takes_cores_too() -> None:
    outcomes = with_cost(workers_bound(), **{ACCELERATOR: 0.6})
    found = found_of(outcomes, usable_cores=3.0)
    assert found.bound_by == CORES  # 2,000/s x (1.0 + 0.6) ms = 3.2 cores
    assert any("the training step takes 3.0 more" in line for line in found.evidence)


def test_the_accelerator_is_fed() -> None:
    found = found_of(workers_bound(**{ACCELERATOR: 2010.0}))
    assert (found.bound_by, found.bound_stage, found.remedies) == (ACCELERATOR_BOUND, None, ())


def test_the_accelerator_is_fed_but_waits_for_copies() -> None:
    outcomes = [*workers_bound(**{ACCELERATOR: 2400.0}), measured(TRANSFER, 2010.0, 0.0)]
    assert found_of(outcomes).bound_by == TRANSFER_BOUND


def test_files_come_too_slowly() -> None:
    outcomes = workers_bound(**{COLD: 800.0, STORAGE: 820.0, WITH_ACCELERATOR: 800.0})
    found = found_of(outcomes, cold=True)
    assert (found.bound_by, found.bound_stage) == (STORAGE_BOUND, FETCH)
    assert "the accelerator takes 5,000 images/s = 500 MB/s of files" in found.evidence
    assert "storage delivers 820 images/s = 82 MB/s of files to 2 readers" in found.evidence
    memory, disk = found.remedies
    assert (memory.change, memory.samples_per_s) == ("files in memory, where all of them fit", 2000)
    assert disk.change == "storage that delivers 200 MB/s in place of 82"


def test_storage_that_could_deliver_more_is_asked_by_more_workers() -> None:
    outcomes = workers_bound(**{COLD: 800.0, STORAGE: 1500.0, WITH_ACCELERATOR: 800.0})
    found = found_of(outcomes, cold=True)
    assert found.remedies[0].change == "more workers than 2, which read while others decode"
    assert found.remedies[0].samples_per_s == 1500


def test_slow_storage_does_not_matter_to_files_in_memory() -> None:
    assert found_of(workers_bound(**{COLD: 800.0})).bound_by == WORKERS


def test_handing_over_alone_is_as_slow() -> None:
    found = found_of(workers_bound(**{HAND_OVER: 2100.0, "collate": 2080.0, "transform": 2070.0}))
    assert (found.bound_by, found.bound_stage) == (HANDING_OVER, HAND_OVER)


def test_workers_that_wait() -> None:
    outcomes = with_cost(workers_bound(**{"transform": 2100.0}), **{FETCH: 0.4, DECODE: 0.39, "transform": 0.2})
    found = found_of(outcomes)
    assert (found.bound_by, found.bound_stage) == (WAITS, "transform")
    assert "cropping, resizing and normalising takes its time" in found.sentence


def test_batches_that_come_unevenly() -> None:
    found = found_of(workers_bound(**{FETCH: 3500.0, ACCELERATOR: 3000.0}), usable_cores=8.0)
    assert found.bound_by == UNEVEN
    assert found.remedies[0].change == "a deeper queue: prefetch_factor 2 -> 4"


def test_too_little_was_measured() -> None:
    without = [one for one in workers_bound() if one.part != ACCELERATOR]
    assert found_of(without).bound_by == UNKNOWN


def test_the_sweeps_fastest_candidate_is_a_remedy() -> None:
    other = outcome(4, measurement=measured(FETCH, 3500.0, 1.0).measurement)
    itself = outcome(2, measurement=measured(FETCH, 9000.0, 1.0).measurement)
    found = found_of(workers_bound(), swept=(other, itself))
    assert ("opencv, 4 workers, prefetch 2", 3500.0, "measured") in [
        (one.change, one.samples_per_s, one.how) for one in found.remedies
    ]


def test_ranks_share_the_cores() -> None:
    found = found_of(workers_bound(), ranks=2, usable_cores=8.0)
    # 2,000/s of four workers: each makes 500/s, and the accelerators take 5,000/s.
    assert found.bound_by == WAITS  # four workers that use two cores
    busy = with_cost(workers_bound(), **{FETCH: 2.0, DECODE: 1.9, "transform": 0.6})
    found = found_of(busy, ranks=2, usable_cores=8.0)
    assert found.bound_by == WORKERS
    assert found.remedies[0].change == "num_workers 2 -> 4 in each rank"


def test_a_slower_candidate_of_the_sweep_is_no_remedy() -> None:
    other = outcome(4, measurement=measured(FETCH, 2100.0, 1.0).measurement)  # its interval begins below 2,000
    assert "measured" not in [one.how for one in found_of(workers_bound(), swept=(other,)).remedies]


def test_a_loader_that_reads_from_storage_by_itself_is_bound_by_it() -> None:
    own = replace(LOADER, backend="own", loader="user")
    outcomes = [one for one in workers_bound(**{WITH_ACCELERATOR: 500.0}) if one.part not in (COLD, STORAGE)]
    outcomes = [
        replace(one, measurement=replace(one.measurement, read_bytes_per_sample=50_000.0))
        if one.part == WITH_ACCELERATOR and one.measurement else one
        for one in outcomes
    ]  # fmt: skip
    found = found_of(outcomes, candidate=own, mean_bytes=0.0)
    assert (found.bound_by, found.bound_stage) == (STORAGE_BOUND, FETCH)


def test_a_cold_loader_without_its_cold_rate_is_not_judged() -> None:
    without = [one for one in workers_bound(**{WITH_ACCELERATOR: 800.0}) if one.part != COLD]
    assert found_of(without, cold=True).bound_by == UNKNOWN


def test_workers_that_start_with_each_epoch() -> None:
    restarting = replace(LOADER, persistent_workers=False)
    outcomes = workers_bound(**{FETCH: 3500.0, ACCELERATOR: 3000.0})
    found = found_of(outcomes, candidate=restarting, usable_cores=8.0)
    assert found.bound_by == RESTARTS
    assert (found.remedies[0].change, found.remedies[0].samples_per_s) == ("persistent_workers=True", 3000.0)


def test_a_training_process_that_loads_in_turn_with_its_steps() -> None:
    alone = replace(LOADER, num_workers=0, prefetch_depth=0)
    outcomes = with_cost(
        workers_bound(**{FETCH: 100.0, ACCELERATOR: 90.0, WITH_ACCELERATOR: 47.0, HAND_OVER: 9000.0, "decode": 101.0}),
        **{FETCH: 10.0, DECODE: 9.9, "transform": 1.0, ACCELERATOR: 0.0},
    )  # fmt: skip
    given = facts(outcomes, candidate=alone, usable_cores=16.0, blocking=True)
    assert given.supply == pytest.approx(1 / (1 / 100 + 1 / 90))
    found = Found(given)
    assert found.bound_by == WORKERS
    assert "the training process is busy" in found.sentence
    assert found.remedies[0].change == "num_workers 0 -> 1"
    # A device that computes by itself is fed while the next batch is loaded.
    assert facts(outcomes, candidate=alone, usable_cores=16.0).supply == pytest.approx(100.0, rel=0.01)


def test_stages_that_were_not_measured_apart_are_not_named_as_one() -> None:
    outcomes = [one for one in workers_bound() if one.part in (ACCELERATOR, FETCH, WITH_ACCELERATOR)]
    found = found_of(outcomes)
    assert (found.bound_by, found.bound_stage) == (WORKERS, None)
    assert "mostly with loading" in found.sentence
    fused = [one for one in workers_bound() if one.part not in ("transform", "collate")]
    assert found_of(fused).bound_stage is None  # decoding, transforming and collating
    in_one_go = [one for one in workers_bound() if one.part != "transform"]
    given = facts(in_one_go, stages=stage_costs(in_one_go, in_place=False))
    assert judge(given).stage == DECODE


def test_each_limit_has_a_sentence() -> None:
    for limit in LIMITS:
        assert sentence_of(facts(workers_bound()), Verdict(bound_by=limit)).endswith("."), limit


def test_all_stages_together_are_loading() -> None:
    assert name_of(STAGES) == "loading"
    assert name_of(STAGES[:2]) == "reading files, decoding"
