"""Faults of the machine, of NVML and of disks, with the real command; see ``test_faults.py``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.store.folder import load_run
from tests import ROOT, fake_nvml
from tests.integration import commands, limits

pytest.importorskip("torch", reason="the children measure torch loaders")
pytestmark = [pytest.mark.usefixtures("nobody_is_left"), pytest.mark.slow]


# --- the machine ------------------------------------------------------------------------------------------------------


def test_a_cpu_quota_below_the_visible_cores(photos: Path, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core")
    with limits.cpu_group(0.8) as group:
        # The budget ends it after the ceiling and the default: on less than a core each candidate takes long.
        options = ("--backends", "opencv", "--budget", "1s", "--json", "-")
        command = commands.sweep_command(photos, tmp_path / "run", *options)
        place = command.index("--workers")
        del command[place : place + 2]  # the default, from the cores
        done = commands.run(limits.inside(command, group))
    assert done.returncode == 0, done.stderr
    result = commands.result_of(done)
    assert result["host"]["cpu_quota_cores"] == pytest.approx(0.8)
    assert result["host"]["cores_usable"] == pytest.approx(0.8)
    assert load_run(tmp_path / "run").run["space"]["workers"] == [0, 1, 2]
    assert "a CPU quota allows 0.8 of the" in done.stderr
    assert "OMP_NUM_THREADS=1" in done.stderr
    assert all(row["cores_used"] < 1.1 for row in result["outcomes"])


@pytest.mark.slow
def test_a_shared_memory_of_64_megabytes_is_seen_before_the_start(photos: Path, tmp_path: Path) -> None:
    command = commands.sweep_command(
        photos, tmp_path / "run", "--backends", "opencv", "--workers", "1,4", "--batch-size", "16", "--image-size",
        "224", "--device", "emulated:160", "--json", "-",
    )  # fmt: skip
    done = commands.run(limits.with_mount(command, "/dev/shm", "size=64m"))
    assert done.returncode == 0, done.stderr
    result = commands.result_of(done)
    (skipped,) = result["does_not_fit"]
    assert skipped["key"] == "opencv-w4-p2-b16"
    assert skipped["failure"]["kind"] == "lacks_shared_memory"
    assert "4 workers x prefetch 2 + 1 = 9 batches of 9.19 MiB" in skipped["failure"]["message"]
    assert "/dev/shm has 64.0 MiB free" in skipped["failure"]["message"]
    assert "docker run --shm-size=1g" in skipped["failure"]["hint"]
    assert "opencv, 4 workers, prefetch 2: skipped: needs" in done.stderr
    assert commands.failures(result) == {}
    assert {row["key"] for row in result["outcomes"]} == {"opencv-w1-p2-b16", "pillow-w0-p0-b16"}


#: A loader that shares its batches, trained with where /dev/shm is small; what it leaves there is reported.
TRAIN = """
import os, sys
import pipetune
from pipetune.errors import PipetuneError
def open_(batch_size, kind="torch"):
    chosen = pipetune.Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=batch_size,
                                loader=kind, reuse_buffers=True)
    return pipetune.open_loader(chosen, sys.argv[1])
try:
    open_(48)
except PipetuneError as error:
    print(error)
for batch_size, kind in ((8, "torch"), (48, "threads")):
    with open_(batch_size, kind) as loader:
        for _ in range(2):
            for images, _ in loader:
                pass
        print(len(loader), tuple(images.shape))
with open_(8) as loader:
    kept = []
    try:
        kept += (images for _ in range(10) for images, _ in loader)
    except RuntimeError as error:
        print([line for line in str(error).splitlines() if line.startswith("RuntimeError")][-1])
del kept, images
print(os.listdir("/dev/shm"))
"""


def test_training_in_a_shared_memory_of_64_megabytes(photos: Path) -> None:
    command = limits.with_mount([sys.executable, "-c", TRAIN, str(photos)], "/dev/shm", "size=64m")
    done = commands.run(command)
    assert done.returncode == 0, done.stderr
    refused, processes, threads, full, left = done.stdout.splitlines()
    assert refused.startswith("this loader needs 165 MiB of shared memory (2 workers x prefetch 2 + ")
    assert refused.endswith("or loader='threads'")
    assert processes.endswith(" (8, 3, 224, 224)")
    assert threads.endswith(" (48, 3, 224, 224)")
    assert full.startswith("RuntimeError: the training loop keeps more batches than /dev/shm has room for; keep fewer")
    assert left == "[]"


def test_a_low_limit_of_open_files_is_seen_before_the_start(half: Path, tmp_path: Path) -> None:
    shutil.copytree(half, tmp_path / "run")
    command = [*commands.python(), "sweep", "--resume", str(tmp_path / "run"), "--workers", "0,16", "--json", "-"]
    done = commands.run(["sh", "-c", 'ulimit -n 60; exec "$@"', "sh", *command])
    assert done.returncode == 0, done.stderr
    (skipped,) = commands.result_of(done)["does_not_fit"]
    assert skipped["key"] == "pillow-w16-p2-b4"
    assert "the limit is 60" in skipped["failure"]["message"]


def test_a_model_and_a_backend_that_do_not_exist(photos: Path, tmp_path: Path) -> None:
    done = commands.run(commands.sweep_command(photos, tmp_path / "run", "--model", "resnet5O"))
    commands.failed_in_one_line(done, 2, "torchvision has no classifier named 'resnet5O'; did you mean resnet50")
    done = commands.run(commands.sweep_command(photos, tmp_path / "run2", "--backends", "torchvison"))
    commands.failed_in_one_line(done, 2, "unknown backend 'torchvison'", "did you mean torchvision")


# --- NVML -------------------------------------------------------------------------------------------------------------

#: Measures a candidate whose parent believes in a GPU, whatever the child trains on.
GPU_PARENT = """
import json, sys
from dataclasses import replace
from pipetune.measure import harness, wire
from pipetune.accelerator.named import emulated_spec
from pipetune.records.sweep import AcceleratorSpec, to_dict
from tests.photo_set import candidate, scan, workload
from pipetune.datasets.index import write_index

images = scan(sys.argv[1])
write_index(sys.argv[2], images)
child = workload(accelerator=emulated_spec("300"), index_path=sys.argv[2], image_size=64, seconds=0.8)
encode = wire.encode_request
wire.encode_request = lambda request: encode(replace(request, workload=child))
gpu = AcceleratorSpec(kind="cuda", name="CUDA device 0", device_index=0)
conditions = harness.Conditions(workload=replace(child, accelerator=gpu), paths=[], cores=frozenset({0}))
outcome, _ = harness.measure(candidate("pillow", 0), "candidate", conditions)
print(json.dumps(to_dict(outcome)))
"""


@pytest.mark.parametrize(
    ("scenario", "util", "expected"),
    [
        (fake_nvml.HEALTHY + "nvmlDeviceGetSamples now=90 ...\n", True, None),
        (fake_nvml.HEALTHY + "nvmlDeviceGetSamples 10=50 20=50 !15\n", False, "GPU readings ended"),
        (fake_nvml.HEALTHY + "nvmlInit !4\n", False, "no GPU readings: NVML refuses this user"),
        (None, False, "no GPU readings: the NVIDIA driver's library libnvidia-ml.so.1 is not installed"),
    ],
    ids=["healthy", "lost", "refusing", "missing"],
)
def test_nvml_ends_the_gpu_columns_and_not_the_run(
    scenario: str | None, util: bool, expected: str | None, photos: Path, tmp_path: Path, nvml_library: Path
) -> None:
    library = nvml_library if scenario is not None else tmp_path
    environment = fake_nvml.environment(library, scenario or "", folder=tmp_path)
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", GPU_PARENT, str(photos), str(tmp_path / "index.json")], capture_output=True, text=True,
        check=False, timeout=290, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measurement"]
    assert measured["samples_per_s"] > 0
    assert (measured["gpu_util_pct"] is not None) == util
    said = " ".join(measured["warnings"])
    assert expected is None or expected in said


def test_a_gpu_that_torch_cannot_use_is_explained(photos: Path, tmp_path: Path, nvml_library: Path) -> None:
    environment = fake_nvml.environment(nvml_library, fake_nvml.HEALTHY, folder=tmp_path)
    command = commands.sweep_command(photos, tmp_path / "run", "--device", "cuda:0")
    done = commands.run(command, **environment)
    commands.failed_in_one_line(done, 2, "no 'cuda:0'", "0 CUDA devices", "--device emulated")


# --- disks and folders ------------------------------------------------------------------------------------------------


def test_a_full_disk_ends_the_sweep_with_what_was_measured(photos: Path, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    command = commands.sweep_command(
        photos, place / "run", "--workers", "0,1,2", "--backends", "pillow,opencv", "--grid"
    )  # the ceiling and a candidate have room, the next one has not
    keep = ["sh", "-c", f'"$@"; code=$?; cp -r {place}/run {tmp_path}/kept; exit $code', "sh", *command]
    done = commands.run(limits.with_mount(keep, str(place), "size=60k"))
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in done.stdout + done.stderr
    assert "free some space, or name another place" in (done.stdout + done.stderr).replace("\n", " ")
    assert "candidate" in done.stdout  # the ranking of what there was
    assert "Traceback" not in done.stderr
    for row in commands.outcomes_in(tmp_path / "kept"):
        assert row["measurement"]


def test_a_read_only_disk_is_reported_before_anything_is_measured(photos: Path, tmp_path: Path) -> None:
    place = tmp_path / "fixed"
    place.mkdir()
    command = commands.sweep_command(photos, place / "run")
    done = commands.run(limits.with_mount(command, str(place), "size=1m,ro"))
    commands.failed_in_one_line(done, 1, "cannot create", "Read-only file system", "name another place")


def test_two_sweeps_on_one_folder(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = commands.start(commands.sweep_command(photos, out, "--seconds", "3"))
    try:
        commands.wait_until((out / "run.json").exists)
        second = commands.run(commands.sweep_command(photos, out))
        commands.failed_in_one_line(second, 2, f"in use by process {first.pid}", "--out DIR")
        third = commands.run([*commands.python(), "sweep", "--resume", str(out)])
        commands.failed_in_one_line(third, 2, f"in use by process {first.pid}")
    finally:
        first.terminate()
        first.communicate(timeout=60)
