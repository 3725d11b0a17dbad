"""``benchmarks/gpu/lease.sh`` on a machine without a GPU: its own code, its ends, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks import bench
from tests import fake_nvml

LEASE = bench.ROOT / "benchmarks" / "gpu" / "lease.sh"

pytestmark = pytest.mark.usefixtures("nobody_is_left")


def environment(**variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "OUT"}
    return {**inherited, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", **variables}


def command(place: Path, *options: str) -> list[str]:
    folders = ["--results", str(place / "results"), "--out", str(place / "out")]
    return ["bash", str(LEASE), "--device", "emulated", *folders, *options]


def run(place: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(place, *options), capture_output=True, text=True, check=False, env=environment(**variables), timeout=200
    )  # fmt: skip


def read(place: Path, name: str, device: str = "emulated") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((place / "results" / device / f"{name}.json").read_text())
    return content


def packed(place: Path) -> set[str]:
    """What came back."""
    names: set[str] = set()
    for path in (place / "out").glob("*.tar.xz"):
        with tarfile.open(path) as archive:
            names |= set(archive.getnames())
    return names


def test_stages_run_and_come_back(tmp_path: Path) -> None:
    done = run(tmp_path, "--only", "facts,doctor,clocks")

    assert done.returncode == 3, done.stdout + done.stderr
    assert "no problem was found" not in done.stdout
    assert read(tmp_path, "facts")["numbers"]["machine"]["cpus"] == os.cpu_count()
    assert read(tmp_path, "doctor")["numbers"]["doctor"]["gpus"] is not None
    assert read(tmp_path, "clocks")["not_proven"][0]["reason"] == "an emulated device has no clock"
    for name in ("facts", "doctor", "clocks"):
        content = read(tmp_path, name)
        assert content["status"] == "not proven"
        assert content["cut"] is False
        assert "problems" not in content
    # Results are tracked: they do not say whose machine it was.
    texts = [path.read_text() for path in (tmp_path / "results" / "emulated").glob("*.[jl]*")]
    assert not [text for text in texts if str(bench.ROOT) in text or str(tmp_path) in text]
    names = packed(tmp_path)
    assert {"emulated/facts.json", "emulated/facts.log", "emulated/doctor.json", "emulated/doctor.tar.xz"} <= names
    assert not list((tmp_path / "out").glob("*running*"))
    (archive,) = (tmp_path / "out").iterdir()
    assert f"comes back: {archive.name}. --resume knows" in done.stdout

    again = run(tmp_path, "--resume", "--only", "facts,clocks")

    assert "left out, because there are results: facts" in again.stdout
    assert (tmp_path / "results" / "emulated" / "clocks-2.json").exists()  # the first try measured nothing
    assert not (tmp_path / "results" / "emulated" / "facts-2.json").exists()

    later = run(tmp_path, "--resume", "--only", "clocks,nvml")

    # What was never tried comes first, though it is of less worth.
    assert later.stdout.index("== nvml") < later.stdout.index("== clocks")


def test_no_cuda_device(tmp_path: Path) -> None:
    done = run(tmp_path, "--device", "cuda:0")

    assert done.returncode == 2
    assert done.stderr.startswith("lease.sh: no CUDA device cuda:0")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("options", [("--only", "sweeps"), ("--device", "tpu"), ("--total", "-1"), ("--shorten", "2")])
def test_wrong_options(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, *options)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert options[1] in done.stderr


@pytest.mark.parametrize("option", ["--results", "--out"])
def test_a_folder_that_cannot_be_written_into(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    done = run(tmp_path, option, str(tmp_path / "file" / "folder"))

    assert done.returncode == 2
    assert done.stderr.startswith(f"lease.sh: {option} {tmp_path / 'file' / 'folder'}")
    assert done.stderr.endswith("cannot be written into: Not a directory; name another folder\n")


def test_plan_runs_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "--plan")

    assert done.returncode == 0
    assert "call 1: 330 s" in done.stdout
    assert not (tmp_path / "results").exists()


def test_a_stage_that_there_is_no_time_for(tmp_path: Path) -> None:
    done = run(tmp_path, "--only", "sweep", "--total", "10")

    assert done.returncode == 3
    assert "not proven: sweep: there was no time for it" in done.stdout


def start_sweep(place: Path, *launcher: str) -> subprocess.Popen[bytes]:
    """A lease whose stage has begun to measure."""
    words = [*launcher, *command(place, "--only", "sweep")]
    (place / "log").touch()
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(words, env=environment(), stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, (place / "log").read_text()
        below = psutil.Process(process.pid).children(recursive=True)
        is_measuring = any("pipetune.child" in " ".join(command_line(child)) for child in below)
        if is_measuring and list((place / "out").glob("*-running.json")):
            return process
        time.sleep(0.1)
    process.kill()
    raise AssertionError((place / "log").read_text())


def command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_nothing_survives_sigkill_and_what_was_done_is_kept(tmp_path: Path) -> None:
    lease = start_sweep(tmp_path)
    lease.kill()  # the fixture looks for survivors, whoever their parent was
    lease.wait()

    content = read(tmp_path, "sweep")
    assert content["cut"] is True
    assert content["status"] == "not proven"
    (running,) = (tmp_path / "out").glob("*-running.json")
    assert json.loads(running.read_text())["stage"] == "sweep"

    done = run(tmp_path, "--only", "facts")

    assert done.returncode == 3
    assert "emulated/sweep.log" in packed(tmp_path)  # what the killed one left
    assert not list((tmp_path / "results" / "emulated").glob(".*.work"))


def test_a_lease_ends_with_the_shell_that_started_it(tmp_path: Path) -> None:
    shell = start_sweep(tmp_path, "bash", "-c", '"$@"; exit $?', "shell")
    shell.kill()
    shell.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_lease_that_is_asked_to_end_brings_back_what_it_has(tmp_path: Path, number: signal.Signals) -> None:
    lease = start_sweep(tmp_path)
    lease.send_signal(number)

    assert lease.wait(timeout=30) == 128 + number
    assert {"emulated/sweep.json", "emulated/sweep.log"} <= packed(tmp_path)
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_stage_is_cut_at_its_cap(tmp_path: Path) -> None:
    done = run(tmp_path, "--only", "sweep", "--shorten", "0.06")

    assert done.returncode == 3, done.stdout + done.stderr
    assert read(tmp_path, "sweep")["seconds"] < 30


@pytest.mark.slow
def test_sampler_cost_beside_a_stand_in_for_nvml(tmp_path: Path) -> None:
    variables = fake_nvml.environment(fake_nvml.build(tmp_path), fake_nvml.HEALTHY)
    done = run(tmp_path, "--only", "nvml", **{**variables, "CUDA_VISIBLE_DEVICES": ""})

    assert done.returncode in (1, 3), done.stdout + done.stderr  # 1: a busy machine
    numbers = read(tmp_path, "nvml")["numbers"]
    for state in ("idle", "busy"):
        assert numbers[state]["lost"] is None
        assert "nvmlDeviceGetMemoryInfo" in numbers[state]["calls"]
        assert numbers[state]["reading"]["cpu_mean_us"] > 0
        assert numbers[state]["signals"]["util_pct"] is not None
