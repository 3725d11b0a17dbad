"""Finding a GPU, and saying why there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.machine.nvml.fake_gpus import Gpus

TWO = """
gpus 2
uuid@0 GPU-first
uuid@1 GPU-second
name@0 Fake A
name@1 Fake B
nvmlDeviceGetMemoryInfo@0 111
nvmlDeviceGetMemoryInfo@1 222
"""


@pytest.mark.parametrize(
    ("which", "name", "used"),
    [
        ({}, "Fake A", 111),
        ({"index": 1}, "Fake B", 222),
        ({"uuid": "GPU-second"}, "Fake B", 222),
        ({"uuid": "second"}, "Fake B", 222),
        ({"uuid": "GPU-first", "index": 1}, "Fake A", 111),
    ],
)
def test_one_of_two_gpus_by_index_or_uuid(gpus: Gpus, which: dict[str, Any], name: str, used: int) -> None:
    seen = gpus.read(TWO, **which)

    assert (seen["name"], seen["readings"][0]["mem_used_bytes"]) == (name, used)


@pytest.mark.parametrize("which", [{"index": 2}, {"uuid": "GPU-third"}])
def test_a_gpu_that_is_not_there_is_named_with_those_that_are(gpus: Gpus, which: dict[str, Any]) -> None:
    seen = gpus.read(TWO, **which)

    assert seen["reason"] == "no_such_gpu"
    assert str(next(iter(which.values()))) in seen["message"]
    assert seen["hint"] == "NVML shows 0: Fake A GPU-first, 1: Fake B GPU-second"
    assert gpus.calls()[-1] == "nvmlShutdown"


def test_all_gpus_are_listed_with_their_problems(gpus: Gpus) -> None:
    listed = gpus.list(TWO + "memory 1000\nnvmlDeviceGetHandleByIndex_v2@0 !15\n")["gpus"]

    assert listed == [
        {"index": 0, "uuid": None, "name": None, "memory_bytes": None, "problem": "GPU is lost"},
        {"index": 1, "uuid": "GPU-second", "name": "Fake B", "memory_bytes": 1000, "problem": None},
    ]
    assert gpus.calls().count("nvmlInit") == gpus.calls().count("nvmlShutdown") == 1


def test_memory_that_this_user_may_not_see_leaves_the_name(gpus: Gpus) -> None:
    listed = gpus.list("name Fake A\nnvmlDeviceGetMemoryInfo !4")["gpus"]

    assert (listed[0]["name"], listed[0]["memory_bytes"], listed[0]["problem"]) == ("Fake A", None, None)


@pytest.mark.parametrize(
    ("code", "reason", "word"),
    [
        (9, "no_driver", "not loaded"),
        (4, "no_permission", "refuses"),
        (18, "version_mismatch", "different versions"),
        (999, "nvml_error", "Unknown Error"),
    ],
)
def test_why_nvml_does_not_start(gpus: Gpus, code: int, reason: str, word: str) -> None:
    for seen in (gpus.read(f"nvmlInit !{code}"), gpus.list(f"nvmlInit !{code}")):
        assert seen["reason"] == reason
        assert word in seen["message"]
        assert seen["hint"]
        assert seen["exit_code"] == 1
    assert set(gpus.calls()) == {"nvmlInit"}


def test_a_gpu_lost_before_it_was_opened(gpus: Gpus) -> None:
    seen = gpus.read(TWO + "nvmlDeviceGetHandleByIndex_v2@1 !15\n", index=1)

    assert (seen["reason"], seen["message"]) == ("nvml_error", "NVML: GPU is lost")


def test_no_library(tmp_path: Path) -> None:
    # An empty file is in the way of a real library, which the machine may have.
    (tmp_path / "libnvidia-ml.so.1").touch()

    seen = Gpus(tmp_path, tmp_path).list("")

    assert seen["reason"] == "no_library"
    assert "libnvidia-ml.so.1" in seen["message"]
    assert "--gpus all" in seen["hint"]


def test_no_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipetune.machine.nvml import gpu

    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(gpu.NvmlUnavailable, match="pip install nvidia-ml-py") as caught:
        gpu.list_gpus()
    assert caught.value.reason == "no_binding"
