"""The GPU suite of the benchmarks on a machine without a GPU: its own code, NVML's calls on a stand-in library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import bench
from tests import fake_nvml

SUITE = bench.ROOT / "benchmarks" / "gpu" / "suite.py"


@pytest.mark.slow
def test_nvml_cost(tmp_path: Path) -> None:
    environment = fake_nvml.environment(fake_nvml.build(tmp_path), fake_nvml.HEALTHY)
    result = tmp_path / "result.json"
    command = [sys.executable, str(SUITE), "--device", "emulated", "--quick", "--only", "nvml", "--json", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode in (bench.HOLDS, bench.MISSED), done.stdout + done.stderr  # 1: a busy machine
    part = json.loads(result.read_text())["parts"]["nvml"]
    assert "states" in part, part
    assert part["states"].keys() == {"idle", "busy"}
    for state in part["states"].values():
        assert state["lost"] is None
        assert "nvmlDeviceGetMemoryInfo" in state["calls"]
        assert state["reading"]["cpu_mean_us"] > 0
        assert state["signals"]["util_pct"] is not None


def test_no_cuda_device(tmp_path: Path) -> None:
    environment = {**bench.environment(), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(SUITE), "--quick", "--json", str(tmp_path / "result.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == bench.SKIPPED
    assert done.stderr.startswith("skipped: no CUDA device")
    assert not (tmp_path / "result.json").exists()


_READ = """
import json, sys
from pathlib import Path
from pipetune.records.sweep import Outcome, from_dict
for line in Path(sys.argv[1]).read_text().splitlines():
    data = json.loads(line)
    print(repr(from_dict(Outcome, data)))
"""


def test_records_by_stand_ins() -> None:
    outcomes = bench.RESULTS / "examples" / "sweep" / "outcomes.jsonl"
    found = []
    for first in ((), (str(SUITE.parent / "stand_ins"),)):
        environment = {**bench.environment(), "PYTHONPATH": os.pathsep.join([*first, str(bench.ROOT)])}
        command = [sys.executable, "-c", _READ, str(outcomes)]
        found.append(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
    assert found[0].count("Outcome(") == len(outcomes.read_text().splitlines())
    assert found[1] == found[0]
