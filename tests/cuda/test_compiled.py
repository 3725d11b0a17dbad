"""The compiled step on the stand-in, whose device runs no kernel that Triton generates: the model is traced only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda

#: Steps on floats and bytes, an epoch's smaller batch among them, after a warm-up in which all is compiled.
PROGRAM = """
import torch, torch._dynamo
from pipetune.accelerator import compiled_model
from pipetune.accelerator.torch_accelerator import TorchAccelerator
from pipetune.child.time_steps import time_steps
from pipetune.loaders.contract import Batch

graphs, runs = [], []
def traced(module, inputs):
    graphs.append(len(inputs))
    def run(*arguments):
        runs.append(len(arguments[-1]))
        return module.forward(*arguments)
    return run
compiled_model.BACKEND = traced

SIZE = 4
def batches(count, dtype=torch.float32, size=SIZE):
    images = torch.zeros(size, 3, 64, 64, dtype=dtype).pin_memory()
    for _ in range(count):
        yield Batch(images, torch.zeros(size, dtype=torch.int64).pin_memory())

accelerator = TorchAccelerator("resnet18", "bf16", torch.device("cuda", 0), compiled=True)
accelerator.warm_up((SIZE, 3, 64, 64))
found = {"graphs": len(graphs), "warm_up": len(runs)}
torch._dynamo.config.error_on_recompile = True
before = counted()["synchronisations"]
steps = list(time_steps([*batches(3), *batches(1, size=SIZE - 1), *batches(2, dtype=torch.uint8)], accelerator))
found |= {
    "steps": len(steps), "graphs_later": len(graphs) - found["graphs"], "runs": len(runs) - found["warm_up"],
    "synchronisations": counted()["synchronisations"] - before, "races": counted()["races"],
}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    env = fake_cuda.environment(cuda_library, tmp_path_factory.mktemp("compiled"), kernel_us=10, copy_gbps=0.5)
    return fake_cuda.run(PROGRAM, env)


def test_everything_is_compiled_in_the_warm_up(found: Any) -> None:
    assert found["graphs"] >= 1
    assert found["warm_up"] == 3 * found["graphs"]
    assert found["graphs_later"] == 0


def test_a_smaller_batch_runs_uncompiled(found: Any) -> None:
    assert found["steps"] == 6
    assert found["runs"] == 5 * found["graphs"]


def test_no_step_waits_for_the_device(found: Any) -> None:
    assert found["synchronisations"] == 1  # when the loop has ended
    assert found["races"] == 0
