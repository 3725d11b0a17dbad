"""A recording of the fake NVML, replayed by the fake NVML: pipetune reads the same as when it was recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.nvml_recording import pack_recording, read_recording
from tests import ROOT, fake_nvml
from tests.fake_nvml import HEALTHY
from tests.fake_nvml.replay import replay_scenario
from tests.unit.machine.nvml.fake_gpus import Gpus

#: What a reading tells; costs and times of the calls are another run's.
COMPARED = ("readings", "spans", "fracs", "unsupported", "lost", "name", "uuid", "driver_version")


def replayed(gpus: Gpus, recording: Path, folder: Path, **options: Any) -> dict[str, Any]:
    now = folder / "now"
    now.write_text("0")
    text = replay_scenario(recording, folder) + f"replay_now file:{now}\nreplay_unix_us 1500000000\n"
    return gpus.read(text, replay_now=now, **options)


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "nvmlDeviceGetSamples 1500050000=90 1500250000=40,1500400000=20 - 1500900000=70 -\nfield.74 0 +50000000 +0\n",
        "nvmlDeviceGetSamples -\nnvmlDeviceGetUtilizationRates 10 60 90 90 30\nprocess_use 42=60,43=35 42=20 -\n",
        "nvmlDeviceGetSamples !3\nnvmlGpmQueryDeviceSupport !13\nnvmlDeviceGetPowerUsage !4\nfield.197 !3\n",
        "nvmlDeviceGetMemoryInfo 5 !10 7 9\nfield.198:u32 100 300 900\nnvmlDeviceGetClockInfo.1 1980 1740\n",
        "nvmlDeviceGetUtilizationRates 10 20 !15\nnvmlDeviceGetSamples !3\n",
    ],
    ids=["healthy", "samples", "no samples", "refused", "gap", "lost"],
)
def test_a_replay_reads_as_the_recording_did(gpus: Gpus, tmp_path: Path, lines: str) -> None:
    options: dict[str, Any] = {"count": 25, "every_s": 0.1, "processes": True}
    recording = tmp_path / "recording.txt"
    seen = gpus.read(f"name Fake H100\nuuid GPU-a\n{HEALTHY}{lines}", record=recording, **options)

    again = replayed(gpus, recording, tmp_path, **options)

    assert {key: again[key] for key in COMPARED} == {key: seen[key] for key in COMPARED}


def record_in_real_time(library: Path, folder: Path, scenario: str, seconds: float) -> Path:
    """By the recorder as the stage of a rented GPU calls it: all calls, far more often than pipetune makes them."""
    path = folder / "full.txt"
    subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.nvml_recorder", str(path), "--seconds", str(seconds)],
        env=fake_nvml.environment(library, scenario, folder=folder), cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    return path


def test_pipetune_reads_a_recording_at_full_rate(nvml_library: Path, gpus: Gpus, tmp_path: Path) -> None:
    scenario = "name Fake H100\nprocesses 42,43\nprocess_use 42=60\n" + HEALTHY + "nvmlDeviceGetSamples now=80 ...\n"
    recording = record_in_real_time(nvml_library, tmp_path, scenario, 1.2)

    packed = pack_recording(recording)
    seen = replayed(gpus, packed, tmp_path, count=10, every_s=0.1, processes=True)

    assert not recording.exists()
    assert (seen["lost"], seen["unsupported"], seen["name"]) == (None, [], "Fake H100")
    reading = seen["readings"][-1]
    assert (reading["util_pct"], reading["mem_used_bytes"], reading["jpeg_util_pct"]) == (80.0, 1_000_000, 25.0)
    assert (reading["sm_clock_mhz"], reading["sm_active_pct"], reading["slowed_pct"]) == (1980, 55.5, 0.0)
    assert reading["power_w"] > 0
    assert seen["fracs"][-1] == {"42": 0.6}
    assert len(seen["spans"]) >= 20


def test_the_recorder_keeps_every_call_of_pipetune_and_what_was_refused(nvml_library: Path, tmp_path: Path) -> None:
    scenario = HEALTHY + "nvmlDeviceGetJpgUtilization !3\nprocesses 42,43\n"
    recording = read_recording(record_in_real_time(nvml_library, tmp_path, scenario, 0.5))

    codes = {(answer.call, answer.code) for answer in recording.answers}
    gpus = Gpus(nvml_library, tmp_path / "pipetune")
    gpus.folder.mkdir()
    gpus.read(scenario, count=10, processes=True)
    by_pipetune = {call.partition(".")[0] for call in gpus.calls() if not call.startswith(("field.", "nvmlSystem"))}
    about = {"nvmlInit", "nvmlShutdown", "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetHandleByIndex_v2"}
    assert by_pipetune - about <= {call for call, _ in codes} | {"nvmlGpmSampleFree"}
    assert ("nvmlDeviceGetJpgUtilization", 3) in codes
    assert ("nvmlDeviceGetSamples", 0) in codes
    (lists,) = {
        tuple(process["pid"] for process in answer.value)
        for answer in recording.answers
        if answer.call == "nvmlDeviceGetComputeRunningProcesses_v3"
    }
    assert lists == (42, 43)


_BESIDE = """
import json, sys, threading, time
from pathlib import Path
from benchmarks.gpu.nvml_recorder import open_recorded_gpu, record, record_beside
folder = Path(sys.argv[1])
with record_beside(folder / "beside.txt", gpm=False):
    time.sleep(0.3)
stop = threading.Event()
thread = threading.Thread(target=record, args=(folder / "thread.txt", 60.0), kwargs={"stop": stop})
thread.start()
time.sleep(0.3)
stop.set()
thread.join()
with open_recorded_gpu(folder / "own.txt") as gpu:
    reading = gpu.read()
print(json.dumps({"util_pct": reading.util_pct, "calls": gpu.call_cost_s()}))
"""


def test_a_load_is_recorded_by_a_process_by_a_thread_or_by_pipetunes_own_reader(
    nvml_library: Path, tmp_path: Path
) -> None:
    environment = fake_nvml.environment(nvml_library, HEALTHY, folder=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _BESIDE, str(tmp_path)], env=environment, cwd=ROOT, check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    own = json.loads(done.stdout)
    assert own["util_pct"] == 40.0  # the samples of the scenario went to the thread
    for name in ("beside", "thread"):
        answers = read_recording(tmp_path / f"{name}.txt").answers
        assert len([answer for answer in answers if answer.call == "nvmlDeviceGetUtilizationRates"]) > 5
        assert ("nvmlGpmSampleGet" in {answer.call for answer in answers}) == (name == "thread")
    recorded = Counter(answer.call for answer in read_recording(tmp_path / "own.txt").answers)
    # The name and the versions are asked for before the first reading, through the same binding.
    assert recorded == {name: count for name, (count, _) in own["calls"].items()} | {"nvmlShutdown": 1}


def test_without_a_driver_the_recorder_says_so_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.nvml_recorder", str(tmp_path / "none.txt"), "--seconds", "1"],
        env=fake_nvml.environment(tmp_path, ""), cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("the NVIDIA driver's library libnvidia-ml.so.1 is not installed; install the driver")
    assert done.stderr.count("\n") == 1


def test_a_replay_can_take_as_long_as_the_calls_did(gpus: Gpus, tmp_path: Path) -> None:
    recording = tmp_path / "recording.txt"
    gpus.read(HEALTHY, record=recording, count=2)
    text = recording.read_text().splitlines()
    number = next(line for line in text if '"nvmlDeviceGetMemoryInfo"' in line).split()[0].removeprefix("=")
    slow = [
        " ".join([*line.split()[:2], "40000", *line.split()[3:]]) if line.split()[0] == number else line
        for line in text
    ]
    recording.write_text("\n".join(slow) + "\n")

    seen = gpus.read(replay_scenario(recording, tmp_path, durations=True), count=2)

    assert seen["readings"][0]["mem_used_bytes"] == 1_000_000
    assert seen["cost_s"]["nvmlDeviceGetMemoryInfo"][1] >= 0.04
