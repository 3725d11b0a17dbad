"""``pipetune watch`` with the fake NVML: what happens to a verdict when the GPU answers badly, slowly or not at all."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests import fake_nvml
from tests.integration.commands import Done, run
from tests.integration.test_watch import StartJob, lines_of, start_job, watch

__all__ = ["start_job"]
pytestmark = pytest.mark.usefixtures("nobody_is_left")

BUSY = "nvmlDeviceGetSamples now=97 ...\n"


def judged(folder: Path, library: Path, job: int, scenario: str, *options: str) -> tuple[Done, list[dict[str, Any]]]:
    environment = fake_nvml.environment(library, scenario, folder=folder)
    command = watch(
        "--once", "--json", "--gpu", "0", "--pid", str(job), "--interval", "100ms", "--window", "2s", *options
    )
    done = run(command, **environment)
    return done, lines_of(done.stdout) if done.stdout else []


def window_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return next(line for line in lines if line["kind"] == "window")


def verdict_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    (verdict,) = window_of(lines)["verdicts"]
    return dict(verdict)


def test_a_busy_gpu_is_healthy(start_job: StartJob, nvml_library: Path, tmp_path: Path) -> None:
    job = start_job("plain")
    done, lines = judged(tmp_path, nvml_library, job.pid, fake_nvml.HEALTHY + BUSY)
    assert done.returncode == 0, done.stderr
    verdict = verdict_of(lines)
    assert (verdict["source"], verdict["cause"]) == ("nvml", "accelerator_bound")
    assert verdict["util_frac"] == pytest.approx(0.97, abs=0.005)


def test_an_idle_pattern_is_lost_time_with_stalls(start_job: StartJob, nvml_library: Path, tmp_path: Path) -> None:
    job = start_job("plain")
    time.sleep(1.2)  # a worker's first second counts as its start
    pattern = " ".join(["now=95"] * 5 + ["now=0"] * 5) + " ..."
    _, lines = judged(tmp_path, nvml_library, job.pid, fake_nvml.HEALTHY + f"nvmlDeviceGetSamples {pattern}\n")
    verdict = verdict_of(lines)
    assert verdict["source"] == "nvml"
    assert 0.3 < verdict["lost_frac"] < 0.75
    assert verdict["cause"] in ("cpu_decode_bound", "cpu_starved")
    assert [line for line in lines if line["kind"] == "stall"]


def test_a_gpu_without_utilisation_is_judged_by_its_multiprocessors(
    start_job: StartJob, nvml_library: Path, tmp_path: Path
) -> None:
    job = start_job("plain")
    scenario = fake_nvml.HEALTHY + "nvmlDeviceGetSamples !3\nnvmlDeviceGetUtilizationRates !3\n"
    done, lines = judged(tmp_path, nvml_library, job.pid, scenario)
    assert done.returncode == 0, done.stderr
    verdict = verdict_of(lines)
    assert verdict["source"] == "nvml"
    assert verdict["util_frac"] == pytest.approx(0.555, abs=0.01)


def test_a_gpu_without_anything_leaves_the_cpu_side(start_job: StartJob, nvml_library: Path, tmp_path: Path) -> None:
    job = start_job("plain")
    scenario = "nvmlDeviceGetSamples !3\nnvmlDeviceGetUtilizationRates !3\n"
    done, lines = judged(tmp_path, nvml_library, job.pid, scenario)
    assert done.returncode == 0, done.stderr
    assert verdict_of(lines)["source"] == "loader wait"


def test_a_gpu_that_is_lost_is_reported_and_the_rest_goes_on(
    start_job: StartJob, nvml_library: Path, tmp_path: Path
) -> None:
    job = start_job("plain")
    scenario = fake_nvml.HEALTHY + "nvmlDeviceGetSamples " + "now=95 " * 8 + "!15\n"
    done, lines = judged(tmp_path, nvml_library, job.pid, scenario)
    assert done.returncode == 0, done.stderr
    assert any(
        "cannot be read any more" in note and "nvmlDeviceGetSamples" in note for note in window_of(lines)["notes"]
    )


def test_nvml_that_refuses_this_user(start_job: StartJob, nvml_library: Path, tmp_path: Path) -> None:
    job = start_job("plain")
    done, lines = judged(tmp_path, nvml_library, job.pid, "nvmlInit !4\n")
    assert done.returncode == 0, done.stderr
    assert verdict_of(lines)["source"] == "loader wait"
    assert any("NVML refuses this user" in note for note in window_of(lines)["notes"])


def test_a_second_process_on_the_gpu_does_not_make_a_starved_job_look_fed(
    start_job: StartJob, nvml_library: Path, tmp_path: Path
) -> None:
    job = start_job("plain")
    time.sleep(1.2)  # a worker's first second counts as its start
    other = os.getpid()
    scenario = f"{fake_nvml.HEALTHY}{BUSY}processes {job.pid},{other}\nprocess_use {job.pid}=20,{other}=77\n"
    _, lines = judged(tmp_path, nvml_library, job.pid, scenario)
    verdict = verdict_of(lines)
    assert verdict["util_frac"] == pytest.approx(0.2, abs=0.02)
    assert verdict["cause"] in ("cpu_decode_bound", "cpu_starved")
    assert f"{other}" in verdict["sentence"]


def test_an_old_driver_still_gives_a_verdict(start_job: StartJob, old_nvml_library: Path, tmp_path: Path) -> None:
    job = start_job("plain")
    done, lines = judged(tmp_path, old_nvml_library, job.pid, fake_nvml.HEALTHY + BUSY)
    assert done.returncode == 0, done.stderr
    assert verdict_of(lines)["source"] == "nvml"


def test_slow_calls_are_made_rarely_and_do_not_stop_the_readings(
    start_job: StartJob, nvml_library: Path, tmp_path: Path
) -> None:
    job = start_job("plain")
    scenario = fake_nvml.HEALTHY + "nvmlDeviceGetSamples 30~now=95 ...\nnvmlDeviceGetMemoryInfo 30~5\n"
    done, lines = judged(tmp_path, nvml_library, job.pid, scenario)
    assert done.returncode == 0, done.stderr
    verdict = verdict_of(lines)
    assert verdict["looks"] >= 8
    assert fake_nvml.calls(tmp_path).count("nvmlDeviceGetSamples") < 8  # read ten times a second


def test_a_call_that_never_returns_does_not_keep_ctrl_c_from_ending_it(
    start_job: StartJob, nvml_library: Path, tmp_path: Path
) -> None:
    job = start_job("plain")
    scenario = fake_nvml.HEALTHY + "nvmlDeviceGetSamples now=95 now=95 60000~now=95 ...\n"
    environment = fake_nvml.environment(nvml_library, scenario, folder=tmp_path)
    command = watch("--json", "--gpu", "0", "--pid", str(job.pid), "--interval", "100ms", "--for", "3s", "--no-save")
    done = run(command, **environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["reason"] == "the time is up"
