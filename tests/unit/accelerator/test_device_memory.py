from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.accelerator.device_memory import allocated_bytes, limit_memory
from pipetune.records.sweep import AcceleratorSpec

GPU = AcceleratorSpec(kind="cuda", name="GPU", device_index=1)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """What torch was told: a share of the memory, and the device's index."""
    told: list[tuple[float, int]] = []
    cuda: Any = SimpleNamespace(
        get_device_properties=lambda index: SimpleNamespace(total_memory=1000 * index),
        set_per_process_memory_fraction=lambda share, index: told.append((share, index)),
        max_memory_allocated=lambda index: 70 + index,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return told


def test_a_limit_is_a_share_of_the_devices_memory(limits: list[tuple[float, int]]) -> None:
    limit_memory(GPU, 250)
    limit_memory(GPU, 5000)
    assert limits == [(0.25, 1), (1.0, 1)]


@pytest.mark.usefixtures("limits")
def test_what_tensors_took() -> None:
    assert allocated_bytes(GPU) == 71
    assert allocated_bytes(AcceleratorSpec(kind="emulated", name="x", rate_samples_per_s=5.0)) is None
