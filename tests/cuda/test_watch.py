"""``doctor``, ``observe`` and ``watch`` where torch's CUDA and NVML see the same devices, both of them stand-ins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT, fake_cuda, fake_nvml

#: Two GPUs, of which torch sees the second one alone: as cuda:0.
NVML = f"gpus 2\n{fake_nvml.HEALTHY}nvmlDeviceGetSamples@0 now=0 ...\nnvmlDeviceGetSamples@1 now=60 ...\n"
#: Trains until its standard input is closed, and observes itself.
JOB = """
import json, sys, threading, time
import torch
import pipetune
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
weights = torch.zeros(64, 64, device="cuda")

def batches():
    while not ended.is_set():
        time.sleep(0.02)
        yield torch.zeros(8, 64).pin_memory()

with pipetune.observe(batches(), save=False) as seen:
    for number, batch in enumerate(seen):
        for _ in range(20):
            weights += batch.to("cuda", non_blocking=True).T @ batch.to("cuda", non_blocking=True)
        if number == 3:
            print("ready", flush=True)
steps, readings = seen.steps(), seen.readings()
info = seen.run.info
print(json.dumps({
    "clock": info["clock"], "gpu": info["gpu"], "uuid": str(torch.cuda.get_device_properties(0).uuid),
    "idle_s": steps["idle_s"].median(), "util": readings["gpu_util_pct"].dropna().unique().tolist(),
    "sm_clock_mhz": readings["gpu_sm_clock_mhz"].max(),
}))
"""


@pytest.fixture
def env(cuda_library: Path, nvml_library: Path, tmp_path: Path) -> dict[str, str]:
    return fake_cuda.environment(cuda_library, tmp_path, nvml=NVML, nvml_dir=nvml_library, devices=2, kernel_us=200)


def pipetune(env: dict[str, str], *words: str) -> list[dict[str, Any]]:
    """The JSON lines that the command writes."""
    done = subprocess.run(
        [sys.executable, "-m", "pipetune", *words], env=env, capture_output=True, text=True, check=False, timeout=100,
        cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()] if "--once" in words else [json.loads(done.stdout)]


def test_doctor_lists_the_devices_that_torch_sees(env: dict[str, str]) -> None:
    (data,) = pipetune(env, "doctor", "--json", "-")

    assert [gpu["uuid"] for gpu in data["gpus"]] == fake_cuda.UUIDS[:2]
    findings = {finding["name"]: finding for finding in data["findings"]}
    assert findings["--device auto"]["value"] == "cuda:0, if torch can use it"
    assert "CUDA" not in findings  # the driver is new enough for this torch


def test_a_loop_is_observed_and_watched_on_the_device_that_it_uses(env: dict[str, str]) -> None:
    env |= {"CUDA_VISIBLE_DEVICES": "1"}
    job = subprocess.Popen(
        [sys.executable, "-c", JOB], env=env, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        options = ("--once", "--json", "--no-stacks", "--no-save", "--interval", "100ms", "--window", "1s")
        lines = pipetune(env, "watch", "--pid", str(job.pid), "--gpu", "1", *options)
    finally:
        out, _ = job.communicate("")
    seen = json.loads(out.splitlines()[-1])

    # torch's only device is NVML's second one; both were found by the UUID.
    assert seen["uuid"] in fake_cuda.UUIDS[1]
    assert (seen["clock"], seen["gpu"]) == ("cuda", "Fake GPU 1")
    assert (seen["util"], seen["sm_clock_mhz"]) == ([60.0], 1980)
    assert seen["idle_s"] > 0
    (window,) = [line for line in lines if line["kind"] == "window"]
    (verdict,) = window["verdicts"]
    assert (verdict["pid"], verdict["source"]) == (job.pid, "nvml")
    assert verdict["util_frac"] == pytest.approx(0.6, abs=0.01)
