"""What NVML's stand-in says of two candidates that are measured on the stand-in for CUDA, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda, fake_nvml

#: Two candidates of a series, which holds the GPU open.
PROGRAM = """
import sys
from dataclasses import asdict
from tests.fake_cuda import forking
forking.install()
from pipetune.datasets.index import write_index
from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure import harness
from pipetune.records.sweep import AcceleratorSpec
from tests.photo_set import PHOTOS, candidate, scan, workload
index = sys.argv[1] + "/index.json"
write_index(index, scan(PHOTOS))
cuda = AcceleratorSpec(kind="cuda", name="CUDA device 0", device_index=0)
asked = workload(
    accelerator=cuda, index_path=index, image_size=32, seconds=2.5, model="squeezenet1_1", precision="fp32"
)
found = []
with HeldGpus() as gpus:
    conditions = harness.Conditions(workload=asked, paths=[], cores=frozenset({0}), gpus=gpus)
    for batch_size in (4, 5):
        outcome, _ = harness.measure(candidate("pillow", 0, batch_size), "candidate", conditions)
        found.append(asdict(outcome))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def measured(cuda_library: Path, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("figures")
    # The energy counter moves by 50 J each time it is read, which is every 0.45 s at most.
    env = fake_cuda.environment(cuda_library, place, nvml=fake_nvml.HEALTHY, nvml_dir=nvml_library)
    outcomes = fake_cuda.run(PROGRAM, env, str(place))
    assert [outcome["failure"] for outcome in outcomes] == [None, None]
    return {"rows": [outcome["measurement"] for outcome in outcomes], "calls": fake_nvml.calls(place)}


@pytest.mark.slow
def test_jpeg_engines_traffic_power_and_energy_reach_the_measurement(measured: Any) -> None:
    for m in measured["rows"]:
        assert m["jpeg_util_pct"] == pytest.approx(25.0)
        assert 0 < m["gpu_power_w"] <= 50 / 0.45
        assert m["energy_j_per_1000_samples"] == pytest.approx(1000 * m["gpu_power_w"] / m["samples_per_s"])
        low, high = m["energy_ci95"]
        assert low < m["energy_j_per_1000_samples"] < high
        # 3 MB received and 200 bytes sent between two readings.
        assert m["pcie_rx_bytes_per_s"] == pytest.approx(15_000 * m["pcie_tx_bytes_per_s"])


@pytest.mark.slow
def test_nvml_is_initialised_once_for_both(measured: Any) -> None:
    assert measured["calls"].count("nvmlInit") == 1
    assert measured["calls"].count("nvmlShutdown") == 1
