"""The GPUs and processes that NVML lists, through the real binding on a fake driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipetune.machine.nvml.processes import list_gpu_uses
from tests import ROOT, fake_nvml

TWO = """
gpus 2
uuid@0 GPU-first
uuid@1 GPU-second
nvmlDeviceGetMinorNumber@0 1
nvmlDeviceGetMinorNumber@1 0
"""

#: Lists the GPUs ``argv[1]`` times.
LISTER = """
import dataclasses, json, sys, time
from pipetune.machine.nvml.processes import list_gpu_uses
from pipetune.machine.nvml.gpu import NvmlUnavailable
began = time.perf_counter()
try:
    lists = [[dataclasses.asdict(use) for use in list_gpu_uses()] for _ in range(int(sys.argv[1]))]
    print(json.dumps({"lists": lists, "took_s": time.perf_counter() - began}))
except NvmlUnavailable as error:
    print(json.dumps({"reason": error.reason, "message": error.message}))
"""

#: Reads the utilisation three times, a minute apart; the file ``argv[1]`` holds it.
READER = """
import itertools, json, pathlib, sys
from pipetune.machine.nvml.gpu import open_gpu
file, seen = pathlib.Path(sys.argv[1]), []
minutes = itertools.count(1)
gpu = open_gpu(clock=lambda: next(minutes) * 60 * 10**9)
for text in ("90", "", "12.0"):
    file.write_text(text)
    seen.append(gpu.read().util_pct)
print(json.dumps({"seen": seen, "unsupported": sorted(gpu.unsupported)}))
"""


def child(library: Path, folder: Path, scenario: str, program: str, argument: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", program, argument],
        env=fake_nvml.environment(library, scenario, folder=folder),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def listed(library: Path, folder: Path, scenario: str) -> list[dict[str, Any]]:
    uses: list[dict[str, Any]] = child(library, folder, scenario, LISTER, "1")["lists"][0]
    return uses


def pids(library: Path, folder: Path, scenario: str) -> list[list[int] | None]:
    return [use["pids"] for use in listed(library, folder, scenario)]


# What NVML says


def test_every_gpu_with_its_device_file_and_processes(nvml_library: Path, tmp_path: Path) -> None:
    seen = listed(nvml_library, tmp_path, TWO + "processes@0 4243,4242\nprocesses@1 -\n")

    assert seen == [
        {"index": 0, "uuid": "GPU-first", "name": "Fake GPU", "minor": 1, "slices": [], "pids": [4242, 4243]},
        {"index": 1, "uuid": "GPU-second", "name": "Fake GPU", "minor": 0, "slices": [], "pids": []},
    ]
    calls = fake_nvml.calls(tmp_path)
    assert (calls.count("nvmlInit"), calls.count("nvmlShutdown"), calls[-1]) == (1, 1, "nvmlShutdown")
    assert "nvmlDeviceGetComputeRunningProcesses_v2" not in calls


def test_each_reading_is_one_step_of_the_scenario(nvml_library: Path, tmp_path: Path) -> None:
    seen = child(nvml_library, tmp_path, "processes 5 20~6,7 20~- 5\n", LISTER, "4")

    assert [one[0]["pids"] for one in seen["lists"]] == [[5], [6, 7], [], [5]]
    assert seen["took_s"] >= 0.04


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "processes"])
def test_a_lost_gpu_says_nothing_and_the_others_do(nvml_library: Path, tmp_path: Path, call: str) -> None:
    assert pids(nvml_library, tmp_path, TWO + f"processes 4242\n{call}@0 !15\n") == [None, [4242]]


@pytest.mark.parametrize("answer", ["!4", "!3", "!13", "!999"])
def test_processes_that_nvml_will_not_list(nvml_library: Path, tmp_path: Path, answer: str) -> None:
    seen = listed(nvml_library, tmp_path, f"uuid GPU-a\nprocesses {answer}\n")

    assert seen == [{"index": 0, "uuid": "GPU-a", "name": "Fake GPU", "minor": None, "slices": [], "pids": None}]


def test_a_driver_before_510_has_an_older_list(old_nvml_library: Path, tmp_path: Path) -> None:
    assert pids(old_nvml_library, tmp_path, TWO + "processes@0 4242,4243\nprocesses@1 !13\n") == [[4242, 4243], None]
    assert "nvmlDeviceGetComputeRunningProcesses_v3" not in fake_nvml.calls(tmp_path)


def test_records_that_the_binding_misreads_are_read_from_the_older_list(nvml_library: Path, tmp_path: Path) -> None:
    assert pids(nvml_library, tmp_path, "process_bytes 32\nprocesses 11,22,33,44,55\n") == [[11, 22, 33, 44, 55]]


@pytest.mark.parametrize(("whole", "expected"), [("!4", [77]), ("77,78", [77, 78])])
def test_a_gpu_in_slices(nvml_library: Path, tmp_path: Path, whole: str, expected: list[int]) -> None:
    scenario = f"slices 2\nuuid@0 GPU-a\nuuid@1 MIG-a\nuuid@2 MIG-b\nprocesses@0 {whole}\nprocesses@1 77\n"

    assert listed(nvml_library, tmp_path, scenario) == [
        {
            "index": 0, "uuid": "GPU-a", "name": "Fake GPU", "minor": None, "slices": ["MIG-a", "MIG-b"],
            "pids": expected,
        }
    ]  # fmt: skip


@pytest.mark.thorough
def test_the_list_of_processes_can_be_steered_from_outside(nvml_library: Path, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    scenario = f"processes 5~file:{file}\n"

    assert pids(nvml_library, tmp_path, scenario) == [None]
    for text, expected in (("31,32\n", [31, 32]), ("-", []), ("!15", None), ("", None)):
        file.write_text(text)
        assert pids(nvml_library, tmp_path, scenario) == [expected]


def test_a_number_can_be_steered_from_outside(nvml_library: Path, tmp_path: Path) -> None:
    file = tmp_path / "util~1"
    seen = child(nvml_library, tmp_path, f"nvmlDeviceGetUtilizationRates file:{file}\n", READER, str(file))

    assert seen["seen"] == [90, None, 12]
    assert "nvmlDeviceGetUtilizationRates" not in seen["unsupported"]


def test_a_number_without_its_file_is_not_supported(nvml_library: Path, tmp_path: Path) -> None:
    scenario = f"nvmlDeviceGetMinorNumber@0 file:{tmp_path}/none\nnvmlDeviceGetMinorNumber@1 7\ngpus 2\n"

    assert [use["minor"] for use in listed(nvml_library, tmp_path, scenario)] == [None, 7]


def test_no_library(tmp_path: Path) -> None:
    # An empty file is in the way of a real library, which the machine may have.
    (tmp_path / "libnvidia-ml.so.1").touch()

    assert child(tmp_path, tmp_path, "", LISTER, "1")["reason"] == "no_library"


def test_no_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipetune.machine.nvml.gpu import NvmlUnavailable

    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(NvmlUnavailable, match="pip install nvidia-ml-py"):
        list_gpu_uses()


def test_nvml_refuses_this_user(nvml_library: Path, tmp_path: Path) -> None:
    assert child(nvml_library, tmp_path, "nvmlInit !4\n", LISTER, "1")["reason"] == "no_permission"
