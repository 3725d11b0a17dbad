"""Which devices torch sees, on the stand-in: a driver that is too old, UUIDs that exist or not, counting orders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda, fake_nvml

#: torch is imported once; each question is asked in a fork, before CUDA is used for the first time.
ASK = """
import os, subprocess, sys
from types import SimpleNamespace
import torch
from pipetune.accelerator import cuda_devices

def run(command, **_):
    reads, writes = os.pipe()
    said, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writes, 1)
        os.dup2(says, 2)
        try:
            exec(compile(command[-1], "asked", "exec"), {"__name__": "__main__"})
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.close(writes)
    os.close(says)
    out, err = (open(fd).read() for fd in (reads, said))
    os.waitpid(pid, 0)
    return SimpleNamespace(stdout=out, stderr=err, returncode=0)

cuda_devices.subprocess = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
found = {}
for question, variables in json.loads(sys.argv[1]).items():
    os.environ.update(variables)
    found[question] = cuda_devices.count_cuda_devices(wanted=False)
    for name in variables:
        del os.environ[name]
print(json.dumps(found))
"""
QUESTIONS = {
    "plain": {},
    "driver": {"FAKE_CUDA_DRIVER": "11080"},
    "unknown": {"CUDA_VISIBLE_DEVICES": "GPU-dead"},
    "abbreviated": {"CUDA_VISIBLE_DEVICES": "GPU-00000001"},
    "MIG": {"CUDA_VISIBLE_DEVICES": "MIG-5b1e4f1a-0000-0000-0000-000000000000"},
    "hidden": {"CUDA_VISIBLE_DEVICES": ""},
    "order": {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
}


@pytest.fixture(scope="module")
def found(cuda_library: Path, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    env = fake_cuda.environment(
        cuda_library, tmp_path_factory.mktemp("devices"), nvml=f"gpus 2\n{fake_nvml.HEALTHY}", nvml_dir=nvml_library,
        devices=2,
    )  # fmt: skip
    return fake_cuda.run(ASK, env, json.dumps(QUESTIONS))


@pytest.mark.parametrize(("question", "count"), [("plain", 2), ("abbreviated", 1), ("order", 1)])
def test_devices_are_counted_as_torch_counts_them(found: Any, question: str, count: int) -> None:
    assert found[question] == [count, None]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("driver", "the NVIDIA driver is too old, it runs CUDA 11.8, and this torch is built for CUDA 13"),
        ("unknown", "CUDA_VISIBLE_DEVICES='GPU-dead' begins with none of them (0: GPU-00000000-"),
        ("MIG", "MIG slices: nvidia-smi -L"),
        ("hidden", "CUDA_VISIBLE_DEVICES='' hides them"),
    ],
)
def test_why_torch_sees_none_is_one_clear_line(found: Any, question: str, told: str) -> None:
    count, why = found[question]
    assert count == 0
    assert why.startswith("NVML sees 2 GPUs, torch can use none: ")
    assert told in why
    assert "\n" not in why
