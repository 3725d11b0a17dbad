from __future__ import annotations

import pytest

from pipetune.doctor.cuda import judge_cuda
from pipetune.doctor.facts import TorchBuild
from pipetune.machine.nvml.gpu import GpuInfo
from pipetune.machine.nvml.gpu_state import GpuState

ONE = GpuInfo(index=0, uuid="GPU-8932f937-0000", name="RTX 3060")
TWO = GpuInfo(index=1, uuid="GPU-11112222-0000", name="RTX A6000")
CUDA = TorchBuild(version="2.8.0+cu130", platform="CUDA 13.0")


def judged(
    *gpus: GpuInfo, cuda: int | None = 13000, torch: TorchBuild | None = CUDA, **variables: str
) -> dict[str, str]:
    """Name of a finding -> its state and value."""
    found = list(judge_cuda(GpuState(gpus=gpus, driver="580", cuda=cuda), torch, variables))
    assert all(finding.hint for finding in found if finding.state == "warning")
    return {finding.name: f"{finding.state}: {finding.value}" for finding in found}


def test_a_driver_that_runs_what_torch_is_built_for_is_no_finding() -> None:
    assert judged(ONE) == {}
    assert judged(ONE, cuda=13010) == {}
    assert judged(ONE, cuda=None) == {}


@pytest.mark.parametrize("cuda", [11080, 12080])
def test_a_driver_that_is_too_old_for_torch(cuda: int) -> None:
    assert judged(ONE, cuda=cuda)["CUDA"].startswith(f"warning: the driver runs CUDA {cuda // 1000}.8 and older")


def test_a_minor_version_less_is_enough() -> None:
    # Minor version compatibility, since CUDA 11.
    assert judged(ONE, cuda=13000, torch=TorchBuild(version="2", platform="CUDA 13.2")) == {}
    assert judged(ONE, torch=TorchBuild(version="2", platform="CPU")) == {}
    assert judged(ONE, torch=None) == {}


@pytest.mark.parametrize(
    ("value", "state", "told"),
    [
        ("0", "note", "0"),
        ("GPU-8932f937", "note", "GPU-8932f937"),
        ("MIG-1234", "note", "MIG-1234"),  # slices are not listed here
        ("GPU-dead", "warning", "begins with no GPU that NVML shows"),
        ("7", "warning", "begins with no GPU that NVML shows"),
        ("", "warning", "hides all GPUs"),
        ("-1", "warning", "hides all GPUs"),
    ],
)
def test_what_cuda_is_told_to_see(value: str, state: str, told: str) -> None:
    found = judged(ONE, CUDA_VISIBLE_DEVICES=value)["CUDA_VISIBLE_DEVICES"]
    assert found.startswith(state)
    assert told in found


def test_gpus_of_several_kinds_are_counted_in_another_order() -> None:
    assert judged(ONE, TWO)["order of GPUs"].startswith("note: ")
    assert judged(ONE, TWO, CUDA_DEVICE_ORDER="PCI_BUS_ID") == {}
    assert judged(ONE, ONE) == {}


def test_without_a_gpu_there_is_nothing_to_judge() -> None:
    assert judged(CUDA_VISIBLE_DEVICES="3") == {}
