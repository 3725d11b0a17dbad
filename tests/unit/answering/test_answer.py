from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.answering import answer as answering
from pipetune.answering.answer import answer
from pipetune.answering.base import Base
from pipetune.answering.shrunken import Size
from pipetune.predicting.model import CORES, OVERSUBSCRIBED, WORKERS, Costs
from pipetune.records.explanation import ACCELERATOR, AUGMENT, STORAGE
from pipetune.records.prediction import EXTRAPOLATED, INTERPOLATED, ONE_FACTOR, Answer, Disk, Prediction, Question
from pipetune.records.sweep import AcceleratorSpec, Candidate
from tests.unit.answering.bases import base, images


def predicted(question: Question, on: Base | None = None) -> Prediction:
    found = answer(question, on or base())
    assert found.prediction is not None, found.refused
    return found.prediction


def refused(question: Question, on: Base | None = None) -> str:
    found = answer(question, on or base())
    assert found.prediction is None
    assert found.refused is not None
    return found.refused


def test_nothing_asked_is_what_was_measured() -> None:
    found = predicted(Question())
    assert found.samples_per_s == pytest.approx(1000, rel=0.01)
    assert (found.kind, found.bound_by) == (INTERPOLATED, WORKERS)


def test_cores_come_with_as_many_workers_each() -> None:
    found = answer(Question(cores=16.0), base())
    assert found.prediction is not None
    assert found.prediction.samples_per_s == pytest.approx(4000, rel=0.05)
    assert found.prediction.kind == EXTRAPOLATED
    assert found.notes == ("with as many workers per core as now",)
    assert predicted(Question(cores=16.0, workers=2)).samples_per_s == pytest.approx(1000, rel=0.01)


def test_fewer_cores_than_workers_bind() -> None:
    found = predicted(Question(cores=1.0, workers=2))
    assert found.samples_per_s == pytest.approx(500 / (1 + OVERSUBSCRIBED), rel=0.01)
    assert found.bound_by == CORES


def test_one_change_up_to_twice_is_surer_than_more() -> None:
    assert predicted(Question(workers=4)).kind == ONE_FACTOR
    assert predicted(Question(workers=1)).kind == ONE_FACTOR
    assert predicted(Question(workers=6)).kind == EXTRAPOLATED
    assert predicted(Question(workers=4, ranks=2)).kind == EXTRAPOLATED
    near, far = predicted(Question(workers=4)).interval90, predicted(Question(workers=4, ranks=2)).interval90
    assert near[1] / near[0] < far[1] / far[0]


def test_another_accelerator_takes_its_own_rate() -> None:
    found = predicted(Question(device="emulated:400"))
    assert found.samples_per_s == pytest.approx(400, rel=0.01)
    assert found.bound_by == ACCELERATOR


def test_a_published_rate_is_of_resnet50() -> None:
    v100 = answer(Question(device="v100"), base())
    assert v100.prediction is not None
    assert v100.prediction.demand_samples_per_s == 1200
    assert "as published" in v100.notes[0]
    other = base()
    vit = replace(other, workload=replace(other.workload, model="vit_b_16"))
    assert "not of vit_b_16" in refused(Question(device="a100"), vit)
    assert "a100" in refused(Question(device="a1000")).replace("a1000", "")


def test_ranks_share_cores_and_have_accelerators_of_their_own() -> None:
    found = predicted(Question(ranks=4))
    assert found.demand_samples_per_s == 20_000
    assert found.samples_per_s == pytest.approx(2000 / (1 + OVERSUBSCRIBED), rel=0.01)
    assert found.bound_by == CORES


def test_smaller_crops_feed_a_faster_accelerator() -> None:
    found = answer(Question(image_size=112), base())
    assert found.prediction is not None
    assert found.prediction.demand_samples_per_s == pytest.approx(20_000)
    assert 1000 < found.prediction.samples_per_s < 1400
    assert "20,000/s" in found.notes[0]


def test_smaller_images_decode_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "size_with", lambda _, edge: Size(
        pixels=87_300, size_bytes=24_000, changed_frac=1.0
    ))  # fmt: skip
    found = answer(Question(shorter_edge=256), base())
    assert found.prediction is not None
    assert 1500 < found.prediction.samples_per_s < 2200
    assert "98 KB become 24 KB" in found.notes[0]


@pytest.mark.parametrize("question", [Question(image_size=112), Question(shorter_edge=256)])
def test_what_decoding_takes_is_known_of_an_explanation_only(question: Question) -> None:
    assert "pipetune explain" in refused(question, base(stages=()))


def test_a_disk_that_is_slower_than_the_loader_binds() -> None:
    found = predicted(Question(disk=Disk(requests_per_s=100)))
    assert found.samples_per_s == pytest.approx(100, rel=0.05)
    assert (found.bound_by, found.next_bound_by) == (STORAGE, WORKERS)


def test_memory_needs_a_disk_and_spares_it_what_it_holds() -> None:
    question = Question(memory_bytes=3 * 2**30)
    found_images = images()
    large = base(storage_per_s=100.0, images=replace(found_images, found_images=20_000))  # 2 GB, of which 1 GiB fits
    assert "--disk" in refused(question, replace(large, storage_per_s=None))
    found = answer(question, large)
    assert found.prediction is not None
    assert 100 < found.prediction.samples_per_s < 250
    low, high = found.prediction.interval90
    assert low < found.prediction.samples_per_s < high
    assert "second epoch" in found.notes[0]
    all_of_it = answer(Question(memory_bytes=16 * 2**30), large)
    assert all_of_it.prediction is not None
    assert all_of_it.prediction.bound_by == WORKERS
    assert "fit" in all_of_it.notes[0]
    assert "less than the training processes and the system take" in refused(Question(memory_bytes=2**30), large)


def test_a_loader_of_ones_own_has_unknown_files() -> None:
    own = base(candidate=Candidate(backend="own", num_workers=2, prefetch_depth=2, batch_size=64, loader="user"),
               images=None)  # fmt: skip
    assert predicted(Question(workers=4), own).samples_per_s == pytest.approx(2000, rel=0.05)
    assert "how large the files are" in refused(Question(disk=Disk(bytes_per_s=1e8)), own)
    for question in (Question(image_size=112), Question(shorter_edge=256)):
        assert "in your own loader" in refused(question, own)


def test_a_cold_sweep_does_not_know_its_storage() -> None:
    cold = base(cold=True)
    assert "pipetune explain" in refused(Question(workers=4), cold)
    known = base(cold=True, storage_per_s=300.0)
    assert predicted(Question(workers=8), known).bound_by == STORAGE


def test_a_training_step_on_the_cpu_blocks_a_loader_without_workers() -> None:
    on_cpu = base(costs=Costs(load_s=0.002, worker_s=0.002, demand_per_s=500.0))
    on_cpu = replace(on_cpu, workload=replace(on_cpu.workload, accelerator=AcceleratorSpec(kind="cpu", name="CPU")))
    assert predicted(Question(workers=0), on_cpu).samples_per_s == pytest.approx(250, rel=0.02)


@pytest.mark.parametrize(
    "values", [{"workers": 0}, {"cores": 1.0}, {"ranks": 8}, {"image_size": 64}, {"device": "emulated:900"},
               {"disk": Disk(bytes_per_s=1e8), "memory_bytes": 64 * 2**30}],
)  # fmt: skip
def test_every_interval_contains_its_prediction(values: dict[str, Any]) -> None:
    found: Answer = answer(Question(**values), base())
    assert found.prediction is not None, found.refused
    low, high = found.prediction.interval90
    assert 0 < low <= found.prediction.samples_per_s <= high


def test_smaller_crops_of_smaller_images_are_one_change_of_the_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "size_with", lambda _, edge: Size(
        pixels=87_300, size_bytes=24_000, changed_frac=1.0
    ))  # fmt: skip
    both = predicted(Question(image_size=112, shorter_edge=256)).samples_per_s
    crop, edge = (predicted(one).samples_per_s for one in (Question(image_size=112), Question(shorter_edge=256)))
    assert both > max(crop, edge)
    assert both == pytest.approx(1000 * 2 / (0.1 * 0.7 + 1.2 * 0.30 + 0.5 * 0.356 + 0.2 * 0.25), rel=0.06)


def test_how_a_training_step_on_the_cpu_gains_from_more_cores_is_not_known() -> None:
    on_cpu = base(costs=Costs(load_s=0.001, worker_s=0.001, step_s=0.2, demand_per_s=10.0), measured_samples_per_s=10.0)
    on_cpu = replace(on_cpu, workload=replace(on_cpu.workload, accelerator=AcceleratorSpec(kind="cpu", name="CPU")))
    assert "training step with more cores" in refused(Question(cores=64.0), on_cpu)
    assert predicted(Question(cores=64.0, device="emulated:900"), on_cpu).samples_per_s > 10
    assert predicted(Question(cores=1.0), on_cpu).samples_per_s <= 10


def test_what_storage_delivers_to_other_numbers_of_readers_is_not_known() -> None:
    cold = base(cold=True, storage_per_s=300.0)
    found = answer(Question(workers=8), cold)
    assert found.prediction is not None
    assert any("other numbers of readers" in note for note in found.notes)
    assert found.prediction.interval90[1] > 600, "as much more as there are readers"
    same = answer(Question(image_size=112), cold)
    assert not any("readers" in note for note in same.notes)


def test_a_training_step_leaves_the_cpu_with_another_accelerator() -> None:
    on_cpu = base(costs=Costs(load_s=0.001, worker_s=0.001, step_s=0.2, demand_per_s=10.0), measured_samples_per_s=10.0)
    on_cpu = replace(on_cpu, workload=replace(on_cpu.workload, accelerator=AcceleratorSpec(kind="cpu", name="CPU")))
    assert predicted(Question(device="emulated:900"), on_cpu).samples_per_s == pytest.approx(900, rel=0.02)
    # 4 cores: a quarter of the pixels, a quarter of the step's 0.2 s.
    assert predicted(Question(image_size=112), on_cpu).samples_per_s == pytest.approx(40, rel=0.02)


def test_cores_and_ranks_together_share_workers_out() -> None:
    found = answer(Question(cores=16.0, ranks=4), base())
    assert found.prediction is not None
    assert "2 workers" in " ".join(found.notes)


def test_waiting_for_the_slowest_rank_widens_the_interval_downwards() -> None:
    synced, apart = base(), base()
    apart = replace(apart, workload=replace(apart.workload, sync="none"))
    question = Question(ranks=8, cores=64.0, workers=8)
    one, other = predicted(question, synced), predicted(question, apart)
    assert one.samples_per_s == other.samples_per_s
    assert one.interval90[0] == pytest.approx(0.895 * other.interval90[0])
    assert one.interval90[1] == other.interval90[1]


def test_hits_that_are_not_known_do_not_make_decoding_faster() -> None:
    fast = base(storage_per_s=50_000.0, images=replace(images(), found_images=20_000))
    with_memory = predicted(Question(memory_bytes=3 * 2**30), fast)
    assert with_memory.interval90[1] < 1000 * 1.4


def augmenting(**changes: Any) -> Base:
    """A loader of which augmenting takes half the CPU time."""
    known = base()
    stages = (
        *known.stages,
        replace(
            known.stages[0],
            stages=(AUGMENT,),
            cpu_s_per_1000_samples=sum(max(0.0, cost.cpu_s_per_1000_samples) for cost in known.stages),
        ),
    )
    return replace(known, stages=stages, workload=replace(known.workload, augment="randaugment"), **changes)


def test_augmenting_on_the_device_takes_its_time_and_not_the_workers() -> None:
    free = answer(Question(transforms="device"), augmenting())
    assert free.prediction is not None
    assert free.prediction.samples_per_s == pytest.approx(2000, rel=0.01)
    assert free.prediction.demand_samples_per_s == 5000
    assert "not in this rate" in free.notes[-1]
    priced = answer(Question(transforms="device"), augmenting(augmenting_s=0.0008))
    assert priced.prediction is not None
    assert priced.prediction.demand_samples_per_s == pytest.approx(1000)  # 0.2 + 0.8 ms
    assert (priced.prediction.bound_by, priced.prediction.samples_per_s) == (ACCELERATOR, pytest.approx(1000, rel=0.02))
    assert "RandAugment takes the accelerator 0.80 ms" in priced.notes[-1]
    other = answer(Question(transforms="device", device="emulated:400"), augmenting(augmenting_s=0.0008))
    assert other.prediction is not None
    assert other.prediction.demand_samples_per_s == 400


def test_where_nothing_would_move_there_is_nothing_to_predict() -> None:
    same = predicted(Question(transforms="worker"), augmenting())
    assert (same.kind, same.samples_per_s) == (INTERPOLATED, pytest.approx(1000, rel=0.01))
    assert "crops and flips only" in refused(Question(transforms="device"))
    plain = augmenting()
    assert "pipetune explain measures it" in refused(Question(transforms="device"), replace(plain, stages=()))
    there = replace(plain, candidate=replace(plain.candidate, transforms_on="device"))
    assert "ask of a candidate that does it there" in refused(Question(transforms="worker"), there)


def test_a_loader_that_leaves_augmenting_to_the_device_says_where_its_time_is_not_known() -> None:
    known = augmenting(augmenting_s=0.0008)
    there = replace(known, candidate=replace(known.candidate, transforms_on="device"))
    unknown = replace(there, augmenting_s=None)
    words = "what RandAugment takes the accelerator is not known, and not in this rate"
    assert words in answer(Question(workers=2), unknown).notes
    assert words in answer(Question(transforms="device", workers=2), unknown).notes
    assert words in answer(Question(device="emulated:400"), there).notes
    assert words not in answer(Question(workers=2), there).notes
    assert words not in answer(Question(workers=2), augmenting()).notes
