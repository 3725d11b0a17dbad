"""The CUDA path on a real device: its timeline, its ceiling, NVML's readings and decoding on the GPU."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.registry import BACKENDS, installed_version
from tests.photo_set import PHOTOS, candidate, scan, workload

torch = pytest.importorskip("torch", reason="the CUDA path is torch")


def batches(count: int, wait_s: float = 0.0, size: int = 32) -> Any:
    from pipetune.loaders.contract import Batch

    images = torch.randn(size, 3, 224, 224).pin_memory()
    labels = torch.zeros(size, dtype=torch.int64).pin_memory()
    for _ in range(count):
        time.sleep(wait_s)
        yield Batch(images, labels)


def steps_of(stream: Any, precision: str = "bf16") -> list[Any]:
    from pipetune.accelerator.torch_accelerator import TorchAccelerator
    from pipetune.child.time_steps import time_steps

    return list(time_steps(stream, TorchAccelerator("resnet18", precision, torch.device("cuda", 0))))


@pytest.mark.parametrize("precision", ["fp32", "amp", "bf16"])
def test_busy_copy_and_idle_add_up_to_the_wall_clock(precision: str) -> None:
    steps = steps_of(batches(40), precision)[10:]
    accounted = sum(step.idle_s + (step.h2d_s or 0) + step.compute_s for step in steps[1:])
    span = (steps[-1].t_end_ns - steps[0].t_end_ns) / 1e9
    assert accounted == pytest.approx(span, rel=0.01)
    assert all(step.h2d_s is not None and step.h2d_s > 0 for step in steps)


def test_the_devices_clock_is_tied_to_ours() -> None:
    steps = steps_of(batches(30))
    now = time.monotonic_ns()
    assert all(step.t_start_ns < step.t_end_ns for step in steps)
    assert 0 <= (now - steps[-1].t_end_ns) / 1e9 < 1.0


def test_a_starved_device_shows_its_idle_time() -> None:
    steps = steps_of(batches(25, wait_s=0.2))[5:]
    span = (steps[-1].t_end_ns - steps[0].t_end_ns) / 1e9
    assert sum(step.idle_s for step in steps[1:]) / span > 0.5


def test_a_fed_device_is_hardly_idle() -> None:
    steps = steps_of(batches(80, size=128))[20:]
    span = (steps[-1].t_end_ns - steps[0].t_end_ns) / 1e9
    assert sum(step.idle_s for step in steps[1:]) / span < 0.1


def test_dali_decodes_on_the_gpu_to_the_reference_pixels() -> None:
    if not installed_version(BACKENDS["dali"]):
        pytest.skip("DALI is not installed")
    from pipetune.loaders.open_loader import open_loader
    from pipetune.records.sweep import AcceleratorSpec

    on_gpu = workload(accelerator=AcceleratorSpec(kind="cuda", name="GPU", device_index=0))
    loader = open_loader(replace(candidate("dali", 2, 8), decode_region="whole"), on_gpu, scan(PHOTOS))
    (ours,) = itertools.islice(iter(loader), 1)
    reference = open_loader(candidate("pillow", 0, 8), workload(), scan(PHOTOS))
    (theirs,) = itertools.islice(iter(reference), 1)
    assert ours.images.is_cuda
    assert float((ours.images.cpu() - theirs.images).abs().mean()) < 0.05
    loader.close()
    reference.close()


def link_photos(root: Path, copies: int) -> Path:
    """Symbolic links: on the machine with the GPU the temporary folder may be on another disk than the photographs."""
    for photo in sorted(PHOTOS.glob("*/*.jpg")):
        folder = root / photo.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(copies):
            (folder / f"{photo.stem}-{number}.jpg").symlink_to(photo)
    return root


@pytest.mark.timeout(330)  # more than the command's own limit; each child loads CUDA anew
def test_a_sweep_on_the_device(tmp_path: Path) -> None:
    root = link_photos(tmp_path / "photos", copies=40)
    backends = "pillow,dali" if installed_version(BACKENDS["dali"]) else "pillow"
    done = subprocess.run(
        [
            sys.executable, "-m", "pipetune", "sweep", "--dataset", str(root), "--model", "resnet18",
            "--device", "cuda:0", "--backends", backends, "--workers", "0,2", "--prefetch", "2", "--seconds", "1",
            "--out", str(tmp_path / "run"), "--json", "-",
        ],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["accelerator"]["kind"] == "cuda"
    assert result["ceiling_samples_per_s"] > 0
    measured = [row for row in result["outcomes"] if "failure" not in row]
    assert measured
    for row in measured:
        assert row["gpu_util_pct"] is not None
        assert row["gpu_mem_bytes"] > 0
        assert 0 < row["goodput"] < 1.2


@pytest.mark.timeout(330)  # more than the command's own limit; the model is compiled before the first step
def test_a_sweep_with_a_compiled_model_and_several_batch_sizes(tmp_path: Path) -> None:
    root = link_photos(tmp_path / "photos", copies=40)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pipetune",
            "sweep",
            "--dataset",
            str(root),
            "--model",
            "resnet18",
            "--device",
            "cuda:0",
            "--backends",
            "pillow",
            "--workers",
            "0",
            "--prefetch",
            "2",
            "--seconds",
            "1",
            "--effort",
            "quick",
            "--blocks",
            "0",
            "--vary",
            "none",
            "--compile",
            "--ceilings",
            "128",
            "--out",
            str(tmp_path / "run"),
            "--json",
            "-",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if "torch.compile needs a compiler" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    result = json.loads(done.stdout)
    assert result["workload"]["compiled"] is True
    assert "torch.compile failed" not in done.stderr
    assert [row["batch_size"] for row in result["ceilings"]] == [64, 128]
    assert all(row["samples_per_s"] > 0 for row in result["ceilings"])
