from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.candidate import diagnose
from pipetune.records.sweep import Candidate, RankShare
from tests.fakes import measurement


def candidate(workers: int) -> Candidate:
    return Candidate(backend="opencv", num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=64)


@pytest.mark.parametrize(
    ("workers", "cores", "changes", "cause"),
    [
        (2, 4.0, {"goodput": 0.97}, causes.HEALTHY),
        (2, 2.0, {"goodput": 0.5, "cpu_busy_pct": 97.0, "cores_used": 1.9}, causes.CPU_DECODE),
        (2, 2.0, {"goodput": 0.5, "cpu_busy_pct": 97.0, "cores_used": 1.0}, causes.CPU_STARVED),
        (0, 8.0, {"goodput": 0.3, "cpu_busy_pct": 13.0, "cores_used": 1.0}, causes.NO_WORKERS),
        (2, 16.0, {"goodput": 0.5, "cpu_busy_pct": 14.0, "cores_used": 1.95}, causes.CPU_DECODE),
        (4, 8.0, {"goodput": 0.5, "psi_io_some_pct": 60.0, "read_bytes_per_sample": 9e4}, causes.DISK),
        (4, 8.0, {"goodput": 0.5, "cpu_busy_pct": 20.0, "cores_used": 1.0}, causes.UNDETERMINED),
        (4, 8.0, {"goodput": 0.5, "cpu_busy_pct": None}, causes.UNDETERMINED),
        # A quota of 4 of 64 cores, used up: the machine as a whole is nearly idle.
        (4, 4.0, {"goodput": 0.5, "cpu_busy_pct": 6.0, "cores_used": 3.9}, causes.CPU_DECODE),
        (4, 8.0, {"goodput": 0.8, "data_wait_frac": 0.01, "accelerator_idle_frac": 0.0}, causes.CONTENTION),
        # All cores busy, but with what: pressure on storage without a byte read is somebody else's.
        (2, 2.0, {"goodput": 0.5, "cpu_busy_pct": 97.0, "cores_used": 1.9, "psi_io_some_pct": 60.0,
          "read_bytes_per_sample": 0.0}, causes.CPU_DECODE),
    ],
)  # fmt: skip
def test_causes(workers: int, cores: float, changes: dict[str, object], cause: str) -> None:
    assert diagnose(candidate(workers), measurement(**changes), cores).cause == cause


@pytest.mark.parametrize(("busy_pct", "cause"), [(92.0, causes.CPU_DECODE), (99.0, causes.CPU_STARVED)])
def test_under_a_quota_it_counts_how_many_cores_are_left_of_all(busy_pct: float, cause: str) -> None:
    """A pod of 8 cores with 4 busy workers, on a node with 64: five cores are left, or less than one."""
    m = measurement(goodput=0.5, cpu_busy_pct=busy_pct, cores_used=4.0)
    found = diagnose(candidate(4), m, 8.0, 64.0)
    assert found.cause == cause
    if cause == causes.CPU_STARVED:
        assert "other processes keep 59.4 of 64 cores busy" in found.sentence


@pytest.mark.parametrize(("idle_frac", "hardly_waits"), [(0.02, True), (0.16, False)])
def test_who_was_seen_to_wait_is_not_said_to_wait_hardly_ever(idle_frac: float, hardly_waits: bool) -> None:
    m = measurement(goodput=1.0, data_wait_frac=idle_frac, accelerator_idle_frac=idle_frac)
    sentence = diagnose(candidate(2), m, 4.0).sentence
    assert ("hardly ever waits" in sentence) == hardly_waits
    assert ("waits 16 % of the time" in sentence) != hardly_waits


def test_no_workers_are_never_called_busy() -> None:
    m = measurement(goodput=0.5, cpu_busy_pct=50.0, cores_used=0.5)
    assert "workers are busy" not in diagnose(candidate(0), m, 1.0).sentence


def test_iowait_is_never_proof() -> None:
    quiet = diagnose(candidate(4), measurement(goodput=0.5, iowait_pct=0.0), 8.0)
    loud = diagnose(candidate(4), measurement(goodput=0.5, iowait_pct=99.0), 8.0)
    assert quiet.cause == loud.cause != causes.DISK


def test_advice_carries_numbers_from_the_measurement() -> None:
    m = measurement(goodput=0.25, samples_per_s=500.0, cpu_s_per_1000_samples=2.0, cpu_busy_pct=6.0, cores_used=1.0)
    advice = diagnose(candidate(0), m, 16.0).advice
    assert advice is not None
    assert advice.startswith("num_workers 0 -> 4")  # 2,000/s at 2 ms each
    assert "4.0 cores" in advice


def test_advice_says_when_there_are_not_enough_cores() -> None:
    m = measurement(goodput=0.1, samples_per_s=500.0, cpu_s_per_1000_samples=2.0, cpu_busy_pct=50.0, cores_used=1.0)
    assert "more than the 2 usable" in (diagnose(candidate(0), m, 2.0).advice or "")


def test_without_a_ceiling_the_idle_time_counts() -> None:
    assert diagnose(candidate(2), measurement(goodput=None, accelerator_idle_frac=0.01), 4.0).lost_frac == 0.01


def test_severity_follows_the_published_bands() -> None:
    assert "highly" in diagnose(candidate(0), measurement(goodput=0.79), 4.0).sentence
    assert "highly" not in diagnose(candidate(0), measurement(goodput=0.85), 4.0).sentence


def test_cores_of_the_training_step_are_not_called_the_loaders() -> None:
    # One worker that sleeps on a network file system beside a thread that launches kernels.
    m = measurement(goodput=0.5, cpu_busy_pct=14.0, cores_used=0.2, step_cores=0.9, samples_per_s=500.0,
                    cpu_s_per_1000_samples=0.4)  # fmt: skip
    found = diagnose(candidate(1), m, 8.0)
    assert found.cause == causes.UNDETERMINED
    assert "loading uses 0.2 of 8 usable cores, the training step 0.9" in found.evidence


def test_a_model_that_trains_on_the_cpu_is_not_decoding() -> None:
    m = measurement(goodput=0.7, cpu_busy_pct=99.0, cores_used=2.0, step_cores=6.0, samples_per_s=500.0,
                    cpu_s_per_1000_samples=4.0)  # fmt: skip
    found = diagnose(candidate(2), m, 8.0)
    assert found.sentence.endswith("all 8 usable cores are busy, 2.0 with loading and 6.0 with the training step")
    assert found.advice is not None
    assert found.advice.startswith("the full rate takes about 2.9 cores with this decoder")


def test_a_device_that_only_waits_for_copies() -> None:
    m = measurement(goodput=0.94, data_wait_frac=0.0, accelerator_idle_frac=0.0, h2d_frac=0.06)
    found = diagnose(candidate(2), m, 8.0)
    assert found.cause == causes.H2D_COPY
    assert "6 %" in found.sentence


def test_steps_that_are_slower_are_named_although_the_loop_waits_a_little() -> None:
    m = measurement(
        goodput=0.4, data_wait_frac=0.08, accelerator_idle_frac=0.05, step_slower_frac=1.2, cpu_busy_pct=80.0,
        cores_used=1.3, step_cores=0.3,
    )  # fmt: skip
    found = diagnose(candidate(2), m, 2.0)
    assert found.cause == causes.CONTENTION
    assert "steps take 120 % longer while this loader runs" in found.sentence


def ranks(count: int) -> tuple[RankShare, ...]:
    return tuple(
        RankShare(rank=rank, samples_per_s=1000.0, goodput=0.5, data_wait_frac=0.5, accelerator_idle_frac=0.2,
                  others_wait_frac=0.3)
        for rank in range(count)
    )  # fmt: skip


def test_workers_are_those_of_all_ranks_and_advice_is_for_each() -> None:
    busy = {"goodput": 0.5, "samples_per_s": 4000.0, "cpu_s_per_1000_samples": 2.0, "cpu_busy_pct": 50.0}
    m = measurement(**busy, cores_used=7.9, ranks=ranks(4), others_wait_frac=0.3)
    found = diagnose(candidate(2), m, 16.0)
    assert found.cause == causes.CPU_DECODE
    assert "all 8 workers are busy" in found.sentence
    assert found.advice is not None
    assert found.advice.startswith("num_workers 2 -> 4 in each rank: the full rate takes 16.0 cores")
    assert "accelerators wait for other ranks 30 % of the time" in found.evidence
    alone = diagnose(candidate(0), measurement(**busy, cores_used=4.0, ranks=ranks(4)), 16.0)
    assert alone.cause == causes.NO_WORKERS
    assert "each training process decodes by itself" in alone.sentence
    # As many ranks as cores: there is none left for workers.
    assert diagnose(candidate(0), measurement(**busy, cores_used=3.9, ranks=ranks(4)), 4.0).cause == causes.CPU_DECODE


def test_waiting_for_other_ranks_is_no_contention() -> None:
    m = measurement(
        goodput=0.7, data_wait_frac=0.01, accelerator_idle_frac=0.0, others_wait_frac=0.3, ranks=ranks(4),
        cpu_busy_pct=20.0, cores_used=1.0,
    )  # fmt: skip
    assert diagnose(candidate(4), m, 8.0).cause == causes.UNDETERMINED


@pytest.mark.parametrize(
    ("workers", "cores", "changes"),
    [
        (2, 2.0, {"goodput": 0.5, "cpu_busy_pct": 97.0, "cores_used": 1.9}),
        (2, 16.0, {"goodput": 0.5, "cpu_busy_pct": 14.0, "cores_used": 1.95}),
        (0, 8.0, {"goodput": 0.3, "cpu_busy_pct": 13.0, "cores_used": 1.0}),
    ],
)
def test_a_recipe_that_the_device_may_do_is_named(workers: int, cores: float, changes: dict[str, object]) -> None:
    m = measurement(**changes)
    found = diagnose(candidate(workers), m, cores, movable_recipe="RandAugment")
    assert str(found.advice).endswith("RandAugment on the device (transforms_on=device) would relieve the workers")
    assert "on the device" not in str(diagnose(candidate(workers), m, cores).advice).split(";")[-1]


def test_steps_that_augment_first_are_not_blamed_on_the_cpu() -> None:
    m = measurement(goodput=0.7, data_wait_frac=0.01, accelerator_idle_frac=0.0)
    found = diagnose(replace(candidate(4), transforms_on="device"), m, 8.0)
    assert found.cause == causes.AUGMENTING
    assert found.sentence.startswith("the accelerator hardly waits (1.0 % of the time), but its steps are slower, ")
    assert found.sentence.endswith("because it augments the images first")
    assert "transforms_on=worker" in str(found.advice)
    assert "compete for the CPU" in diagnose(candidate(4), m, 8.0).sentence


OF_SCRIPT = Candidate(backend="script", num_workers=0, prefetch_depth=0, batch_size=16, loader="user")


def said(candidate: Candidate, target: float | None = None, **values: object) -> str:
    m = measurement(**{"data_wait_frac": 0.14, "accelerator_idle_frac": 0.14, "goodput": 0.75, **values})
    return diagnose(candidate, m, 4.0, target=target).sentence


def test_of_a_script_nobody_knows_that_it_decodes() -> None:
    assert said(OF_SCRIPT) == "input bound: the training process loads by itself, one sample after the other"
    assert "decod" not in said(replace(OF_SCRIPT, num_workers=4, prefetch_depth=2), cores_used=4.0)
    assert "decodes by itself" in said(replace(OF_SCRIPT, backend="pillow", loader="torch"))


def test_how_bound_by_its_input_a_loop_is_follows_the_wait_that_was_measured() -> None:
    assert said(OF_SCRIPT).startswith("input bound"), "14 % of waiting, though 25 % are lost"
    assert said(OF_SCRIPT, data_wait_frac=0.24, accelerator_idle_frac=0.24).startswith("highly input bound")


def test_nothing_that_reaches_the_target_is_called_bound_by_its_input() -> None:
    assert said(OF_SCRIPT, target=0.7).startswith("enough for the target; why it is no faster: ")


def test_an_accelerator_that_waits_a_little_is_not_said_never_to() -> None:
    slowed = {"step_slower_frac": 0.3, "data_wait_frac": 0.04, "accelerator_idle_frac": 0.04}
    assert said(OF_SCRIPT, **slowed).startswith("the accelerator hardly waits (4.0 % of the time), but its steps take")
    slowed |= {"data_wait_frac": 0.0, "accelerator_idle_frac": 0.0}
    assert said(OF_SCRIPT, **slowed).startswith("the accelerator never waits, but its steps take")


def test_workers_that_live_on_do_not_start_anew() -> None:
    kept = replace(OF_SCRIPT, num_workers=2, prefetch_depth=2, keep_workers=True)
    rate = measurement().samples_per_s
    assert "begins with a wait for its first batch" in said(kept, steady_samples_per_s=1.5 * rate)
    assert "start anew" in said(replace(kept, keep_workers=False), steady_samples_per_s=1.5 * rate)
