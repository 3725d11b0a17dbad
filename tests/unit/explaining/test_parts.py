from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.accelerator.named import emulated_spec
from pipetune.explaining.parts import first_stages, parts_to_measure
from pipetune.records.explanation import (
    ACCELERATOR,
    AUGMENT,
    AUGMENTING,
    COLD,
    COLLATE,
    DECODE,
    FETCH,
    HAND_OVER,
    LOOP,
    NORMALISE,
    ON_DEVICE,
    READING,
    STAGES,
    STORAGE,
    TRANSFER,
    TRANSFORM,
    WITH_ACCELERATOR,
)
from pipetune.records.sweep import NO_MODEL, AcceleratorSpec, Candidate
from tests.photo_set import workload

PLAIN = Candidate(backend="pillow", num_workers=2, prefetch_depth=2, batch_size=64)
RING = replace(PLAIN, backend="opencv", reuse_buffers=True)
FUSED = replace(PLAIN, backend="jpeg-roi", loader="threads")
DALI = Candidate(backend="dali", num_workers=2, prefetch_depth=2, batch_size=64)
NVJPEG = Candidate(backend="nvjpeg", num_workers=2, prefetch_depth=2, batch_size=64)
OWN = Candidate(backend="own", num_workers=2, prefetch_depth=2, batch_size=64)


@pytest.mark.parametrize(
    ("candidate", "stages"),
    [
        (PLAIN, (HAND_OVER, COLLATE, TRANSFORM, DECODE, FETCH)),
        (RING, (HAND_OVER, TRANSFORM, DECODE, FETCH)),
        (FUSED, (HAND_OVER, DECODE, FETCH)),
        (DALI, (FETCH,)),
        (NVJPEG, (DECODE, FETCH)),
        (OWN, (HAND_OVER, COLLATE, TRANSFORM, DECODE, FETCH)),
    ],
)
def test_a_loader_begins_with_each_of_its_stages(candidate: Candidate, stages: tuple[str, ...]) -> None:
    assert first_stages(candidate) == stages


def test_each_part_does_what_comes_after_its_first_stage() -> None:
    found = {part.name: part for part in parts_to_measure(PLAIN, workload(index_path="all"), subset_index="some",
                                                          cold=True)}  # fmt: skip
    assert list(found) == [
        ACCELERATOR, LOOP, HAND_OVER, COLLATE, TRANSFORM, DECODE, FETCH, WITH_ACCELERATOR, READING, COLD, STORAGE,
    ]  # fmt: skip
    assert found[TRANSFORM].stages == (TRANSFORM, COLLATE, HAND_OVER)
    assert found[FETCH].stages == ()
    assert {part.workload.index_path for part in found.values() if part.of_subset} == {"some"}
    assert found[WITH_ACCELERATOR].workload == workload(index_path="all")
    assert (found[COLD].workload.cache, found[STORAGE].workload.cache) == ("cold", "cold")
    assert found[STORAGE].stages == (FETCH,)
    assert found[STORAGE].candidate.reuse_buffers


def test_the_loader_alone_has_nothing_that_works_on_its_batches() -> None:
    real = workload(accelerator=AcceleratorSpec(kind="cuda", name="CUDA device 1", device_index=1))
    for chosen in (workload(), real):
        for part in parts_to_measure(PLAIN, chosen, subset_index="", cold=True):
            with_it = part.name in (ACCELERATOR, TRANSFER, WITH_ACCELERATOR)
            assert (part.workload.model == NO_MODEL) is not with_it, part.name
            assert part.workload.accelerator.cuda_index == chosen.accelerator.cuda_index  # batches go to it


def test_copies_are_measured_where_there_are_any() -> None:
    def names(device: str) -> list[str]:
        chosen = workload(accelerator=emulated_spec(device))
        return [part.name for part in parts_to_measure(PLAIN, chosen, subset_index="", cold=False)]

    assert TRANSFER in names("v100")
    assert TRANSFER not in names("1000")


def test_an_emulated_rate_is_measured_once_unless_it_scatters() -> None:
    def once(device: str) -> list[str]:
        chosen = workload(accelerator=emulated_spec(device))
        return [part.name for part in parts_to_measure(PLAIN, chosen, subset_index="", cold=False) if part.once]

    assert once("1000") == [ACCELERATOR]
    assert once("1000?scatter=0.02") == []


def test_every_part_knows_its_training_loop() -> None:
    parts = parts_to_measure(PLAIN, workload(), subset_index="", cold=True)
    first = [part.name for part in parts if part.beside is None]
    assert first == [ACCELERATOR, LOOP]
    assert all(part.beside in first for part in parts if part.beside is not None)


def test_storage_is_read_by_as_many_workers_for_a_loader_that_decodes_itself() -> None:
    parts = {part.name: part for part in parts_to_measure(DALI, workload(), subset_index="", cold=True)}
    reader = parts[STORAGE].candidate
    assert (reader.backend, reader.num_workers, reader.loader) == ("pillow", 2, "torch")
    assert parts[FETCH].stages == ()


def test_a_loader_of_the_users_own_is_read_from_its_first_stage_on() -> None:
    parts = {part.name: part for part in parts_to_measure(OWN, workload(), subset_index="", cold=False)}
    assert parts[FETCH].stages == tuple(stage for stage in STAGES if stage not in AUGMENTING)


def test_a_loader_that_restarts_its_workers_is_divided_with_workers_that_stay() -> None:
    restarting = replace(PLAIN, persistent_workers=False)
    for part in parts_to_measure(restarting, workload(), subset_index="", cold=True):
        as_it_is = part.name in (ACCELERATOR, TRANSFER, WITH_ACCELERATOR, COLD)
        assert part.candidate.persistent_workers is not as_it_is, part.name


def test_a_decoder_on_the_gpu_copies_nothing() -> None:
    real = workload(accelerator=AcceleratorSpec(kind="cuda", name="CUDA device 0", device_index=0))
    names = [part.name for part in parts_to_measure(DALI, real, subset_index="", cold=False)]
    assert TRANSFER not in names
    assert TRANSFER in [part.name for part in parts_to_measure(PLAIN, real, subset_index="", cold=False)]


def test_the_loop_is_no_limit_for_batches_of_an_unknown_size() -> None:
    one = replace(OWN, batch_size=1)
    parts = {part.name: part for part in parts_to_measure(one, workload(), subset_index="", cold=False)}
    rate = parts[FETCH].workload.accelerator.rate_samples_per_s
    assert rate is not None
    assert rate >= 1e6


@pytest.mark.parametrize(
    ("candidate", "stages"),
    [
        (PLAIN, (HAND_OVER, COLLATE, NORMALISE, AUGMENT, TRANSFORM, DECODE, FETCH)),
        (replace(PLAIN, transfer="uint8"), (HAND_OVER, COLLATE, AUGMENT, TRANSFORM, DECODE, FETCH)),
        (FUSED, (HAND_OVER, NORMALISE, AUGMENT, DECODE, FETCH)),
        (replace(FUSED, transforms_on="device"), (HAND_OVER, DECODE, FETCH)),
        (replace(DALI, transforms_on="device"), (FETCH,)),
    ],
)
def test_a_loader_that_augments_normalises_after_it(candidate: Candidate, stages: tuple[str, ...]) -> None:
    assert first_stages(candidate, "randaugment") == stages
    chosen = workload(augment="randaugment", accelerator=emulated_spec("900"))
    parts = {part.name: part for part in parts_to_measure(candidate, chosen, subset_index="", cold=False)}
    assert [name for name in parts if name in STAGES] == list(stages)
    assert all({*AUGMENTING} & {*parts[name].stages} <= {*stages} for name in stages)
    assert ON_DEVICE not in parts, "how fast an emulated device does it is not known"


def test_what_augmenting_takes_the_accelerator_is_measured_where_it_can() -> None:
    chosen = workload(augment="mixup", accelerator=emulated_spec("900?augment=20000&scatter=0.1"))
    for place in ("worker", "device"):
        candidate = replace(PLAIN, transforms_on=place)
        parts = {part.name: part for part in parts_to_measure(candidate, chosen, subset_index="", cold=False)}
        assert parts[ON_DEVICE].candidate.transforms_on == "device"
        assert (parts[ON_DEVICE].role, parts[ON_DEVICE].beside) == ("ceiling", ACCELERATOR)
        assert parts[ACCELERATOR].candidate.transforms_on == "worker", "a plain step"
        assert parts[WITH_ACCELERATOR].candidate.transforms_on == place
    basic = workload(accelerator=emulated_spec("900?augment=20000"))
    assert ON_DEVICE not in [part.name for part in parts_to_measure(PLAIN, basic, subset_index="", cold=False)]
