from __future__ import annotations

import importlib.metadata
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import MissingPackageError, PipetuneError, UsageError
from pipetune.machine.host import describe_host
from pipetune.records.sweep import Candidate
from pipetune.sweeping import accelerator, setup
from pipetune.sweeping.options import AUTO_RANKS, SweepOptions, check
from pipetune.sweeping.setup import plan, prepare
from tests.photo_set import PHOTOS

CHOSEN = SweepOptions(
    dataset=str(PHOTOS), backends=("pillow",), batch_size=4, image_size=96, device="emulated:500", seconds=1.0, seed=3
)


OWN = Candidate(backend="own", num_workers=6, prefetch_depth=8, batch_size=32)


def quiet(stage: str, done: int, total: int | None) -> None:
    """Progress that is not shown."""


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    host = replace(describe_host(), cores_usable=3.0, memory_available_bytes=2**34)
    monkeypatch.setattr(setup, "describe_host", lambda: host)
    monkeypatch.setattr(accelerator, "count_cuda_devices", lambda wanted: (0, None))


def test_the_users_own_loader_is_one_of_those_that_may_be_recommended() -> None:
    own = replace(
        CHOSEN, dataset="own:mine:loader(num_workers, prefetch_factor, pin_memory)", backends=None, untuned=OWN,
        batch_size=32, workers=(0, 2), remarks=("its data set is iterable",),
    )  # fmt: skip
    prepared = prepare(own, quiet)
    assert prepared.space.has(OWN)
    assert (prepared.space.workers, prepared.space.prefetch) == ((0, 2, 6), (2, 4, 8))
    assert "its data set is iterable" in prepared.notes
    assert not prepare(replace(own, max_workers=4), quiet).space.has(OWN), "beyond the user's limit"


def test_beside_a_cuda_device_decoders_on_it_are_candidates_and_so_is_dali_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accelerator, "count_cuda_devices", lambda wanted: (1, None))
    monkeypatch.setattr("pipetune.candidates.varied.installed_version", lambda backend: "1")
    on_gpu = prepare(replace(CHOSEN, backends=None, device="cuda:0", vary=None), quiet).space
    assert {"dali", "dali-cpu", "nvjpeg", "nvimagecodec"} <= {*on_gpu.backends}
    assert {*on_gpu.accelerator_decodes} == {"dali", "nvjpeg", "nvimagecodec"}
    dali = {point.decode_region for point in on_gpu.grid() if point.backend == "dali"}
    beside = {(point.decode_region, point.hw_decoder_load) for point in on_gpu.grid() if point.backend == "dali-cpu"}
    assert (dali, beside) == ({"window", "whole"}, {("window", None)})
    assert [on_gpu.candidate(name, 2, 2).decode_region for name in ("dali", "dali-cpu")] == ["whole", "window"]
    without = prepare(replace(CHOSEN, backends=None, vary=None), quiet).space
    assert {"dali-cpu", "nvjpeg", "nvimagecodec"}.isdisjoint(without.backends)
    assert without.accelerator_decodes == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"target": 0.0}, "--target 0 "),
        ({"target": 1.01}, "--target 1.01 "),
        ({"batch_size": 0}, "--batch-size 0 "),
        ({"image_size": 4}, "--image-size 4 "),
        ({"seconds": 0.1}, "--seconds 0.1 "),
        ({"seed": -1}, "--seed -1 "),
        ({"blocks": -1}, "--blocks -1 "),
        ({"target_metric": "power"}, "--target-metric 'power'"),
        ({"precision": "fp8"}, "--precision 'fp8'"),
        ({"cache": "hot"}, "--cache 'hot'"),
        ({"workers": (-1,)}, "--workers -1 is below 0"),
        ({"workers": ()}, "--workers names no number"),
        ({"prefetch": (0, 2)}, "--prefetch 0 is below 1"),
        ({"cheapest": ("cores", "money")}, "--cheapest 'money' is unknown"),
        ({"cheapest": ()}, "--cheapest is empty"),
        ({"augment": "cutmix"}, "--augment 'cutmix' is unknown"),
        ({"augment": "mixup", "command": ("python", "train.py")}, "--augment mixup has no effect on a script"),
        ({"augment": "mixup", "dataset": "own:mine:loader(num_workers)"}, "no effect on a loader of your own"),
    ],
)
def test_an_option_out_of_range_is_named_with_its_value(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(replace(CHOSEN, **changes))
    assert expected in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"backends": ("pilow",)}, "did you mean pillow"),
        ({"backends": ("dali",), "workers": (0,)}, "dali needs at least 1"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": "cuda:1"}, "0 CUDA devices"),
        ({"target_metric": "nvml"}, "--target-metric nvml needs a GPU"),
        ({"device": "emulated:v100", "model": "vit_b_16"}, "resnet50 only"),
        ({"dataset": "/nowhere"}, "/nowhere"),
        ({"workers": (4, 8), "max_workers": 2}, "--max-workers 2 leaves no worker count"),
        ({"compile": True}, r"--compile needs a device that trains the model \(got EMULATED 500/s\)"),
        ({"compile": True, "command": ("python", "train.py")}, "--compile is for pipetune's own training step"),
        ({"ceilings": (128,), "dataset": "own:mine:loader(num_workers)"}, "--ceilings is for a data set"),
        ({"ceilings": (0,)}, "--ceilings 0 is below 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        prepare(replace(CHOSEN, **changes), quiet)


def test_without_torch_the_command_that_installs_it_is_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(MissingPackageError, match=r"pip install 'pipetune\[torch\]'"):
        check(CHOSEN)


def test_worker_counts_come_from_the_usable_cores() -> None:
    assert prepare(CHOSEN, quiet).space.workers == (0, 1, 2, 3, 4, 6)
    assert prepare(replace(CHOSEN, workers=(5, 1)), quiet).space.workers == (1, 5)


def test_a_rank_is_given_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "count_cuda_devices", lambda wanted: (3, None))
    prepared = prepare(replace(CHOSEN, device="cuda:0"), quiet)
    assert prepared.space.workers == (0, 1, 2)
    assert prepared.space.usable_cores == pytest.approx(prepare(CHOSEN, quiet).space.usable_cores / 3)
    alone = "this process sees 3 GPUs, and what is measured holds for a training on one of them alone"
    assert any(note.startswith(alone) and "worker counts go up to" in note for note in prepared.notes)
    named = prepare(replace(CHOSEN, device="cuda:0", workers=(6,)), quiet)
    assert named.space.workers == (6,)
    assert named.space.usable_cores == prepare(CHOSEN, quiet).space.usable_cores
    assert any(note.startswith(alone) and "worker counts go up to" not in note for note in named.notes)
    assert prepare(replace(CHOSEN, device="cpu"), quiet).space.workers == (0, 1, 2, 3, 4, 6)


def test_ranks_that_are_measured_share_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "count_cuda_devices", lambda wanted: (3, None))
    alone = prepare(CHOSEN, quiet).space
    every = prepare(replace(CHOSEN, device="cuda", ranks=AUTO_RANKS, batch_size=1), quiet)
    assert (every.ranks, every.space.ranks) == (3, 3)
    assert every.space.workers == (0, 1, 2)  # of each
    assert every.space.usable_cores == alone.usable_cores
    assert any(note.startswith("3 ranks are measured at the same time") for note in every.notes)
    assert not any("alone" in note for note in every.notes)
    two = prepare(replace(CHOSEN, device="cuda", ranks=2, batch_size=1), quiet)
    assert two.space.workers == (0, 1, 2)  # the third one needs its share, too
    assert two.space.usable_cores == pytest.approx((alone.usable_cores or 0) * 2 / 3)
    assert any("holds for a training on 2 of them alone" in note for note in two.notes)


def test_each_rank_needs_a_batch() -> None:
    with pytest.raises(UsageError, match="fewer than a batch of 4 for each of 50 ranks") as caught:
        prepare(replace(CHOSEN, device="emulated:100", ranks=50), quiet)
    assert "--batch-size" in (caught.value.hint or "")


def test_auto_says_why_a_gpu_that_is_there_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "count_cuda_devices", lambda wanted: (0, "NVML sees 1 GPU, torch can use none"))
    prepared = prepare(replace(CHOSEN, device="auto"), quiet)
    assert prepared.accelerator.kind == "emulated"
    assert any("NVML sees 1 GPU" in note for note in prepared.notes)


def test_a_device_that_is_not_there_comes_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "NVML sees 1 GPU, torch can use none: the NVIDIA driver is too old"
    monkeypatch.setattr(accelerator, "count_cuda_devices", lambda wanted: (0, why))
    with pytest.raises(UsageError, match=r"no 'cuda:0': this process sees 0 CUDA devices \(NVML .* too old\); try"):
        prepare(replace(CHOSEN, device="cuda:0"), quiet)


def test_a_device_of_an_untested_kind_is_used_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "count_cuda_devices", lambda wanted: (1, "an AMD GPU through ROCm: not run"))
    prepared = prepare(replace(CHOSEN, device="auto"), quiet)
    assert prepared.accelerator.kind == "cuda"
    assert "an AMD GPU through ROCm: not run" in prepared.notes


def test_batches_are_pinned_where_they_are_copied_to_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "count_cuda_devices", lambda wanted: (1, None))
    assert prepare(replace(CHOSEN, device="auto"), quiet).space.pin_memory
    assert not prepare(CHOSEN, quiet).space.pin_memory


def test_files_that_are_no_images_are_counted_and_named(tmp_path: Path) -> None:
    for photo in PHOTOS.glob("people/*.jpg"):
        (tmp_path / photo.name).write_bytes(photo.read_bytes())
    (tmp_path / "text.jpg").write_text("no image")
    notes = prepare(replace(CHOSEN, dataset=str(tmp_path), batch_size=2), quiet).all_notes
    assert any("1 file was skipped" in note and "text.jpg" in note for note in notes)


def test_the_plan_carries_what_was_chosen() -> None:
    chosen = replace(CHOSEN, budget_s=90.0, timeout_s=120.0, grid=True, cache="cold", seconds=5.0)
    made = plan(chosen, prepare(chosen, quiet), "/run/index.json")
    assert (made.budget_s, made.conditions.timeout_s, made.grid, made.seed) == (90.0, 120.0, True, 3)
    workload = made.conditions.workload
    assert (workload.index_path, workload.cache, workload.seconds, workload.warmup_limit_s, workload.image_size) == (
        "/run/index.json", "cold", 5.0, 10.0, 96,
    )  # fmt: skip
    assert len(made.conditions.paths) == len(set(made.conditions.paths)) > 0


def test_a_compiled_model_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = replace(CHOSEN, device="cpu", compile=True, ceilings=(8, 16), model="resnet18")
    monkeypatch.setenv("CXX", "true")
    made = plan(compiled, prepare(compiled, quiet), "/run/index.json")
    assert made.conditions.workload.compiled
    assert made.other_batches == (8, 16)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(PipetuneError, match=r"CXX names no-such-compiler, which is not there; .*without --compile"):
        prepare(compiled, quiet)


def test_reduced_decoding_is_tried_where_images_are_large_enough_or_it_was_asked_for() -> None:
    prepared = prepare(replace(CHOSEN, backends=None, image_size=640), quiet)
    assert "opencv-reduced" not in prepared.space.backends
    assert any("backend opencv-reduced is left out: 0 of 4 images" in note for note in prepared.details)
    assert "opencv-reduced" in prepare(replace(CHOSEN, backends=None, image_size=96), quiet).space.backends
    named = replace(CHOSEN, backends=("opencv-reduced",), image_size=640)
    assert prepare(named, quiet).space.backends == ("opencv-reduced",)


def test_the_user_may_grant_less_than_the_machine_has() -> None:
    prepared = prepare(replace(CHOSEN, max_workers=2, image_size=2048, max_shm_bytes=512 << 20), quiet)
    assert prepared.space.workers == (0, 1, 2)
    lacking = {candidate.key: failure.kind for candidate, failure in prepared.does_not_fit}
    # 4 float32 images of 2048 px are 192 MiB: four of them, and the one that is in use.
    assert lacking["pillow-w2-p2-b4"] == "lacks_shared_memory"
    assert all("--max-shm grants 512 MiB" in failure.message for _, failure in prepared.does_not_fit)
    prepared = prepare(replace(CHOSEN, max_ram_bytes=600 << 20, workers=(0, 8)), quiet)
    assert {failure.kind for _, failure in prepared.does_not_fit} == {"lacks_memory"}
    assert prepared.goal.most_memory_bytes == 600 << 20


def test_what_costs_is_the_users_to_say() -> None:
    assert prepare(CHOSEN, quiet).goal.cheapest == ("accelerator", "cores", "memory", "pixels")
    assert prepare(replace(CHOSEN, cheapest=("pixels", "memory")), quiet).goal.cheapest == ("pixels", "memory")


def test_exact_is_an_option_of_the_sweep() -> None:
    assert prepare(replace(CHOSEN, backends=("opencv", "torchvision"), exact=True), quiet).space.backends == (
        "torchvision",
    )


def test_shards_are_not_for_dali(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        for path in sorted(PHOTOS.glob("*/*.jpg")):
            tar.add(path, path.relative_to(PHOTOS))
    chosen = replace(CHOSEN, dataset=str(tmp_path / "photos.tar"), backends=("opencv", "dali"))
    prepared = prepare(chosen, quiet)
    assert prepared.space.backends == ("opencv",)
    assert any("dali is left out: it is given files" in note for note in prepared.notes)
    assert plan(chosen, prepared, str(tmp_path / "index.json")).conditions.paths == [str(tmp_path / "photos.tar")]
    with pytest.raises(UsageError, match="dali is left out"):
        prepare(replace(chosen, backends=("dali",)), quiet)


def test_the_accelerator_is_known_before_the_data_set_is_read() -> None:
    """What it needs is imported meanwhile."""
    told: list[object] = []
    prepared = prepare(CHOSEN, quiet, on_accelerator=told.append)
    assert told == [prepared.accelerator]
    with pytest.raises(UsageError):
        prepare(replace(CHOSEN, dataset="/nowhere"), quiet, on_accelerator=told.append)
    assert told == [prepared.accelerator] * 2


def test_images_are_augmented_where_that_is_possible() -> None:
    chosen = replace(CHOSEN, augment="randaugment")
    assert dict(prepare(CHOSEN, quiet).space.settings).keys() & {"transforms_on"} == set()
    emulated = prepare(chosen, quiet)
    assert dict(emulated.space.settings)["transforms_on"] == ("worker",)
    assert any("device=" not in note and "emulated:500?augment=20000" in note for note in emulated.notes)
    for device in ("emulated:500?augment=9000", "cpu"):
        there = prepare(replace(chosen, device=device), quiet)
        assert dict(there.space.settings)["transforms_on"] == ("worker", "device"), device
        assert not any("transforms_on" in note for note in there.notes)
    assert plan(chosen, emulated, "index.json").conditions.workload.augment == "randaugment"


def test_a_backend_that_cannot_augment_needs_a_device_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetune.sweeping.suitable.can_augment", lambda name: name != "opencv")
    chosen = replace(CHOSEN, augment="mixup", backends=("pillow", "opencv"))
    prepared = prepare(chosen, quiet)
    assert prepared.space.backends == ("pillow",)
    assert any(note.startswith("backend opencv is left out: mixup") for note in prepared.notes)
    there = replace(chosen, device="emulated:500?augment=9000")
    assert prepare(there, quiet).space.backends == ("pillow", "opencv")
    assert prepare(replace(there, fix=(("transforms_on", "worker"),)), quiet).space.backends == ("pillow",)
    with pytest.raises(UsageError, match="opencv is left out"):
        prepare(replace(chosen, backends=("opencv",)), quiet)
