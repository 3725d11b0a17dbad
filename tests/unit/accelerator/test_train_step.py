from __future__ import annotations

import itertools

import pytest

from pipetune.child.time_steps import time_steps
from pipetune.errors import UsageError

torch = pytest.importorskip("torch", reason="real accelerators are torch")

from pipetune.accelerator.cpu import CpuAccelerator  # noqa: E402
from pipetune.accelerator.train_step import TrainingStep  # noqa: E402
from pipetune.loaders.contract import Batch  # noqa: E402


def batch(label: int = 1, size: int = 64) -> Batch:
    return Batch(torch.randn(2, 3, size, size), torch.tensor([0, label]))


@pytest.mark.thorough
def test_steps_on_the_cpu_are_waited_for_and_never_idle_but_for_the_data() -> None:
    steps = list(time_steps([batch() for _ in range(3)], CpuAccelerator("squeezenet1_1", "fp32")))
    assert len(steps) == 3
    assert all(step.compute_s > 0 and step.h2d_s is None and step.samples == 2 for step in steps)
    assert all(a.t_end_ns <= b.t_start_ns for a, b in itertools.pairwise(steps))


@pytest.mark.thorough
@pytest.mark.parametrize("precision", ["fp32", "amp", "bf16"])
def test_a_step_changes_the_weights(precision: str) -> None:
    torch.manual_seed(0)
    step = TrainingStep("resnet18", precision, torch.device("cpu"))
    weight = next(step._model.parameters())
    before = weight.clone()
    step.run(*step.move(batch()))
    assert torch.isfinite(weight).all()
    assert not torch.equal(weight, before)


def test_images_arrive_channels_last() -> None:
    images, _ = TrainingStep("resnet18", "fp32", torch.device("cpu")).move(batch())
    assert images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.thorough
def test_more_classes_than_the_model_has_are_no_error() -> None:
    step = TrainingStep("resnet18", "fp32", torch.device("cpu"))
    step.run(*step.move(batch(label=250_000)))


@pytest.mark.thorough
def test_models_with_auxiliary_heads() -> None:
    step = TrainingStep("googlenet", "fp32", torch.device("cpu"))
    step.run(*step.move(batch(size=96)))


@pytest.mark.parametrize(("model", "expected"), [("resnet5O", "resnet50"), ("zzzz", "list_models")])
def test_unknown_models(model: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        TrainingStep(model, "fp32", torch.device("cpu"))
