from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="models are torch's")
torchvision = pytest.importorskip("torchvision", reason="models are torchvision's")

from pipetune.accelerator.checkpointing import checkpoint_blocks  # noqa: E402


def layers() -> Any:
    """Convolutions one after the other, as VGG has them."""
    convolutions = [torch.nn.Conv2d(3 if number == 0 else 4, 4, 3, padding=1) for number in range(8)]
    features = torch.nn.Sequential(*(layer for one in convolutions for layer in (one, torch.nn.ReLU(inplace=True))))
    return torch.nn.Sequential(features, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())


def run(model: Any, inputs: Any) -> tuple[Any, list[Any]]:
    torch.manual_seed(1)  # dropout
    output = model(inputs)
    output = output if isinstance(output, torch.Tensor) else output.logits
    output.square().mean().backward()
    return output.detach(), [one.grad.clone() for one in model.parameters() if one.grad is not None]


@pytest.mark.parametrize(
    ("name", "edge", "blocks"),
    [
        ("resnet18", 32, 8),
        ("squeezenet1_1", 64, 8),
        ("layers", 32, 1),
        pytest.param("shufflenet_v2_x0_5", 32, 16, marks=pytest.mark.slow),
    ],
)
def test_the_same_result_and_gradients_with_less_kept(name: str, edge: int, blocks: int) -> None:
    kept: dict[bool, int] = {}
    found: dict[bool, Any] = {}
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = layers() if name == "layers" else torchvision.models.get_model(name, weights=None, num_classes=4)
        model.train()
        if checkpointing:
            assert checkpoint_blocks(model) == blocks
        sizes: list[int] = []

        def count(tensor: Any, sizes: list[int] = sizes) -> Any:
            sizes.append(tensor.nbytes)
            return tensor

        inputs = torch.rand(2, 3, edge, edge, generator=torch.Generator().manual_seed(2))
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            found[checkpointing] = run(model, inputs)
        kept[checkpointing] = sum(sizes)
    assert kept[True] < 0.7 * kept[False]
    (output, grads), (output_again, grads_again) = found[False], found[True]
    assert torch.allclose(output, output_again, atol=1e-5)
    assert len(grads) == len(grads_again)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(grads, grads_again, strict=True))


@pytest.mark.parametrize("name", ["googlenet", "inception_v3", "densenet121", "convnext_tiny", "vit_b_32", "vgg11"])
@pytest.mark.filterwarnings("ignore:The default weight initialization")
def test_models_of_other_forms_have_blocks_too(name: str) -> None:
    with torch.device("meta"):
        model = torchvision.models.get_model(name, weights=None)
    assert checkpoint_blocks(model) >= (2 if name == "vgg11" else 4)
