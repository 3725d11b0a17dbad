"""Batch sizes on the stand-in, whose memory ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda

pytest.importorskip("PIL", reason="it makes the batches")
pytestmark = pytest.mark.slow

MEMORY_MB = 700
#: Images and crops are small, so that decoding on this machine's cores takes no time to speak of.
PROGRAM = """
import json, sys
from dataclasses import asdict
from tests.fake_cuda import forking
forking.install()
from pipetune.scaling.batch_run import BatchOptions, find_batch_size
found = find_batch_size(
    BatchOptions(model="squeezenet1_1", image_size=64, precision="fp32", device="cuda:0", seconds=0.3,
                 dataset="synthetic:caltech256?n=16"),
    lambda point: None, lambda size: None, lambda stop: None,
)
print(json.dumps(asdict(found)))
"""


@pytest.fixture(scope="module")
def found(cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    env = fake_cuda.environment(
        cuda_library, tmp_path_factory.mktemp("batch"), memory_mb=MEMORY_MB, kernel_us=40
    )  # fmt: skip
    return fake_cuda.run(PROGRAM, env)


def test_the_memory_of_the_device_is_the_limit(found: Any) -> None:
    assert found["total_bytes"] == MEMORY_MB << 20
    assert 0.5 * found["total_bytes"] < found["limit_bytes"] <= 0.92 * found["total_bytes"]
    peaks = {point["batch_size"]: point["peak_bytes"] for point in found["points"] if point["peak_bytes"]}
    largest = found["largest"]
    assert peaks[largest] <= found["limit_bytes"]
    # One that is a twentieth larger would not fit, by what each sample takes.
    assert peaks[largest] + (0.05 * largest + 8) * found["bytes_per_sample"] > found["limit_bytes"]


def test_torch_keeps_to_the_limit(found: Any) -> None:
    known = [point for point in found["points"] if point["peak_bytes"] is not None]
    assert len(known) >= 3
    assert all(0 < point["allocated_bytes"] <= point["peak_bytes"] <= found["limit_bytes"] for point in known)


def test_few_processes_and_at_most_one_that_did_not_fit(found: Any) -> None:
    assert 3 <= len(found["points"]) <= 6
    assert sum(point["out_of_memory"] for point in found["points"]) <= 1
    assert found["stopped"] is None


def test_fake_tensors_come_near(found: Any) -> None:
    """Torch reserves more than tensors take; of a small memory that is much."""
    assert found["largest"] <= found["predicted_largest"] < 2 * found["largest"]


def test_the_knee_is_the_smallest_that_is_near_the_best_of_what_was_measured(found: Any) -> None:
    """Without cuDNN each sample has kernels of its own, so that small batches are nearly as fast here."""
    rates = {point["batch_size"]: point["samples_per_s"] for point in found["points"] if point["samples_per_s"]}
    assert len(rates) >= 3
    assert found["knee"] == min(size for size, rate in rates.items() if rate >= 0.97 * max(rates.values()))
    assert found["knee"] <= found["largest"] <= max(rates)
