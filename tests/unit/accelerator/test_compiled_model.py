from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from pipetune.errors import PipetuneError

torch = pytest.importorskip("torch", reason="torch.compile is torch's")

from pipetune.accelerator import compiled_model  # noqa: E402
from pipetune.accelerator.compiled_model import CompiledModel, compiling  # noqa: E402
from pipetune.accelerator.train_step import Batch, TrainingStep  # noqa: E402


class Backend:
    """Compiles nothing, and counts what it is asked to compile and what runs of it."""

    def __init__(self) -> None:
        self.graphs = self.runs = 0

    def __call__(self, module: Any, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1

        def run(*arguments: Any) -> Any:
            self.runs += 1
            return module.forward(*arguments)

        return run


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    counted = Backend()
    monkeypatch.setattr(compiled_model, "BACKEND", counted)
    torch._dynamo.reset()
    return counted


def images(size: int, edge: int = 8) -> Any:
    return torch.randn(size, 3, edge, edge)


def test_a_smaller_batch_runs_uncompiled_and_nothing_is_compiled_anew(backend: Backend) -> None:
    plain = torch.nn.Conv2d(3, 4, 3)
    model = CompiledModel(plain)
    for size in (4, 4, 3, 2, 4):
        batch = images(size)
        assert torch.equal(model(batch), plain(batch))
    assert (backend.graphs, backend.runs) == (1, 3)


def test_a_failure_of_the_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: Any, inputs: Any) -> Any:
        raise RuntimeError("No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')")

    monkeypatch.setattr(compiled_model, "BACKEND", refuse)
    torch._dynamo.reset()
    with pytest.raises(PipetuneError) as error, compiling():
        CompiledModel(torch.nn.Linear(3, 4))(torch.zeros(2, 3))
    assert str(error.value).startswith("torch.compile failed: ")
    assert "No working C++ compiler found" in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint == "run without --compile"


def test_memory_that_runs_out_is_no_failure_of_the_compiler() -> None:
    with pytest.raises(torch.OutOfMemoryError), compiling():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.thorough
def test_floats_and_bytes_in_any_layout_take_the_same_graph(backend: Backend) -> None:
    step = TrainingStep("resnet18", "fp32", torch.device("cpu"), compiled=True)
    labels = torch.zeros(3, dtype=torch.int64)
    step.warm_up(Batch(images(3, 32), labels), steps=1)
    graphs = backend.graphs
    weight = next(step._model.parameters())
    before = weight.clone()
    for batch in (
        images(3, 32),
        images(3, 32).contiguous(memory_format=torch.channels_last),
        torch.zeros(3, 3, 32, 32, dtype=torch.uint8),
        torch.zeros(3, 32, 32, 3, dtype=torch.uint8).permute(0, 3, 1, 2),
        images(2, 32),
    ):
        step.run(*step.move(Batch(batch, labels[: len(batch)])))
    assert backend.graphs == graphs >= 1
    assert backend.runs == 5 * graphs  # the warm-up, and all but the smaller batch
    assert not torch.equal(weight, before)


@pytest.mark.thorough
def test_blocks_that_are_checkpointed_are_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # Their batch norm counts batches in place, which only a compiled backward pass takes into account.
    monkeypatch.setattr(compiled_model, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    step = TrainingStep("resnet18", "fp32", torch.device("cpu"), checkpointing=True, compiled=True)
    weight = next(step._model.parameters())
    before = weight.clone()
    step.warm_up(Batch(images(3, 32), torch.zeros(3, dtype=torch.int64)), steps=2)
    assert not torch.equal(weight, before)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor generates C++, and there is no g++")
def test_inductor_computes_what_the_eager_model_does_and_trains_it() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    step = TrainingStep("resnet18", "fp32", torch.device("cpu"), compiled=True)
    batch = Batch(images(4, 64), torch.zeros(4, dtype=torch.int64))
    shown, _ = step.move(batch)
    # Statistics of few values are sensitive to the order of a sum, so digits are fewer than float32 has.
    assert torch.allclose(step._forward(shown), step._model(shown), rtol=1e-2, atol=1e-2)
    weight = next(step._model.parameters())
    before = weight.clone()
    step.warm_up(batch, steps=1)
    assert not torch.equal(weight, before)
