from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook import device_memory as module
from pipetune.hook.device_memory import CannotMeasureMemoryError, DeviceMemory
from tests.fakes import Clock


class Cuda:
    """torch.cuda, as far as its allocator is asked: a model on the second of two devices."""

    def __init__(self) -> None:
        self.allocated = [0, 80]
        self.reserved, self.peak, self.errors, self.emptied = 300, 900, 2, 0
        self.fraction: float | None = None
        self.asked: set[int] = set()

    def device_count(self) -> int:
        return len(self.allocated)

    def memory_allocated(self, index: int) -> int:
        return self.allocated[index]

    def empty_cache(self) -> None:
        self.emptied += 1
        self.reserved = 100

    def mem_get_info(self, index: int) -> tuple[int, int]:
        self.asked.add(index)
        return 1000 - self.reserved, 1200

    def memory_reserved(self, index: int) -> int:
        self.asked.add(index)
        return self.reserved

    def reset_peak_memory_stats(self, index: int) -> None:
        self.asked.add(index)
        self.peak = self.reserved

    def max_memory_allocated(self, index: int) -> int:
        return self.peak - 50

    def set_per_process_memory_fraction(self, fraction: float, index: int) -> None:
        self.asked.add(index)
        self.fraction = fraction

    def max_memory_reserved(self, index: int) -> int:
        self.asked.add(index)
        return self.peak

    def memory_stats(self, index: int) -> dict[str, Any]:
        self.asked.add(index)
        return {"num_ooms": self.errors} if self.errors else {}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=made))
    monkeypatch.setattr(DeviceMemory, "_own_shares", {})
    return made


def measured() -> tuple[DeviceMemory, Clock]:
    clock = Clock()
    return DeviceMemory(0.5, clock=lambda: clock() / 1e9), clock


def test_the_peak_since_then_and_what_the_process_may_have_on_the_models_device(cuda: Cuda) -> None:
    memory, _ = measured()
    assert cuda.emptied == 1
    cuda.peak = 750
    assert memory.found() == {
        "gpu_mem_bytes": 750, "gpu_allocated_bytes": 700, "gpu_free_bytes": 1000, "gpu_total_bytes": 1200,
    }  # fmt: skip
    assert cuda.asked == {1}


def test_a_step_of_an_optimizer_is_seen(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    class Optimizer:
        def __init__(self, *parameters: object) -> None:
            self.param_groups = [{"params": [parameter]} for parameter in parameters]

    class Sgd(Optimizer):
        pass

    memory, _ = measured()
    assert "optimizer_stepped" not in memory.found(), "no optimizer is there"
    monkeypatch.setitem(sys.modules, "torch.optim", SimpleNamespace(Optimizer=Optimizer))
    frozen, trained = SimpleNamespace(_version=0), SimpleNamespace(_version=3)
    optimizer = Sgd(frozen, trained)
    memory, _ = measured()
    assert memory.found()["optimizer_stepped"] is False
    trained._version += 1
    assert memory.found()["optimizer_stepped"] is True
    optimizer.param_groups.append({"params": []})
    measured()


def test_torchs_optimizers_change_the_versions_of_their_parameters() -> None:
    torch = pytest.importorskip("torch", reason="its optimizers are asked")
    gc.collect()  # other tests' optimizers
    for name in ("SGD", "AdamW"):
        for options in ({}, {"foreach": True}, {"foreach": False}):
            parameter = torch.nn.Parameter(torch.ones(3))
            optimizer = getattr(torch.optim, name)([parameter], lr=0.1, **options)
            assert any(one is parameter for one in module._parameters())
            parameter.sum().backward()
            before = parameter._version
            optimizer.step()
            assert parameter._version > before, (name, options)
    fused = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))], fused=True)
    assert module._parameters() == []
    del fused


def test_what_earlier_batches_took_is_forgotten(cuda: Cuda) -> None:
    memory, _ = measured()
    cuda.peak = 950
    memory.settle()
    assert cuda.emptied == 2
    assert memory.found()["gpu_mem_bytes"] == 100


def test_an_error_that_the_script_has_caught_is_seen(cuda: Cuda) -> None:
    memory, clock = measured()
    clock.sleep(1)
    assert not memory.ended()
    cuda.errors += 1
    assert not memory.ended(), "it was asked just now"
    clock.sleep(1)
    assert memory.ended()


def test_errors_that_torch_has_caught_itself_in_the_first_steps_are_none(cuda: Cuda) -> None:
    memory, clock = measured()
    cuda.errors += 3
    memory.settle()
    clock.sleep(1)
    assert not memory.ended()
    assert not memory.ended_at_all()
    cuda.errors += 1
    assert memory.ended_at_all()


def test_before_that_they_are_why_a_script_ends(cuda: Cuda) -> None:
    memory, _ = measured()
    cuda.errors += 1
    assert memory.ended_at_all()


@pytest.mark.parametrize(("allocated", "message"), [([0, 0], "nothing in a GPU's memory"), ([50, 80], "several GPUs")])
def test_a_model_that_is_not_on_one_device(cuda: Cuda, allocated: list[int], message: str) -> None:
    cuda.allocated = allocated
    with pytest.raises(CannotMeasureMemoryError, match=message):
        DeviceMemory(0.5)


@pytest.mark.parametrize(("limit", "share"), [(600, 0.5), (5000, 1.0), (None, 0.5 * 1000 / 1200)])
def test_torch_fails_beyond_the_limit(cuda: Cuda, limit: int | None, share: float) -> None:
    DeviceMemory(0.5, limit)
    assert cuda.fraction == pytest.approx(share)


def test_a_limit_of_the_scripts_own_is_kept(cuda: Cuda) -> None:
    cuda.get_per_process_memory_fraction = lambda index: 0.25  # type: ignore[attr-defined]
    assert DeviceMemory(0.5).found()["gpu_free_bytes"] == 300
    assert cuda.fraction == pytest.approx(0.125)
    cuda.get_per_process_memory_fraction = lambda index: 0.125  # type: ignore[attr-defined]
    assert DeviceMemory(0.5, 140).found()["gpu_free_bytes"] == 300, "it is our own by then"
