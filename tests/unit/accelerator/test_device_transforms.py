"""What a device does to a batch: bytes and floats come out alike, and a plain batch is normalised only."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")
pytest.importorskip("torchvision", reason="operations are torchvision's")

from pipetune.accelerator.device_transforms import DeviceTransforms  # noqa: E402
from pipetune.accelerator.normalise import Normaliser  # noqa: E402
from pipetune.accelerator.train_step import TrainingStep  # noqa: E402
from pipetune.augmentation.draws import draw_share  # noqa: E402
from pipetune.augmentation.on_device import augment_batch  # noqa: E402
from pipetune.augmentation.recipes import BASIC, MIXUP, RANDAUGMENT, RECIPES  # noqa: E402

IMAGES = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 1, 2, 3, 0, 1])
NORMALISE = Normaliser()


def test_bytes_are_found_again_in_normalised_images() -> None:
    every = torch.arange(256, dtype=torch.uint8).repeat(3, 1).view(1, 3, 16, 16)
    assert torch.equal(NORMALISE.undo(NORMALISE(every)), every)
    assert NORMALISE.undo(every) is every


@pytest.mark.parametrize("recipe", RECIPES)
def test_bytes_and_floats_come_out_alike(recipe: str) -> None:
    transforms = DeviceTransforms(recipe, 3, 4)
    bytes_, floats = IMAGES.clone(), NORMALISE(IMAGES)
    images, labels = transforms(bytes_, LABELS, range(6))
    again, same = transforms(floats, LABELS, range(6))
    assert images.dtype == torch.float32
    assert torch.equal(images, again)
    assert torch.equal(labels, same)
    assert torch.equal(bytes_, IMAGES), "a loader's memory is not written to"
    assert torch.equal(floats, NORMALISE(IMAGES))
    assert torch.equal(images, NORMALISE(IMAGES)) == (recipe == BASIC)


def test_images_are_augmented_before_they_are_normalised() -> None:
    images, labels = DeviceTransforms(RANDAUGMENT, 3, 4)(IMAGES, LABELS, range(6))
    assert torch.equal(images, NORMALISE(augment_batch(IMAGES, RANDAUGMENT, 3, range(6))))
    assert labels is LABELS


def test_mixed_images_have_labels_of_all_classes() -> None:
    images, labels = DeviceTransforms(MIXUP, 3, 7)(IMAGES, LABELS, range(10, 16))
    share = draw_share(3, 10)
    assert torch.allclose(images, share * NORMALISE(IMAGES) + (1 - share) * NORMALISE(IMAGES).roll(1, 0), atol=1e-5)
    assert labels.shape == (6, 7)
    assert torch.allclose(labels.sum(1), torch.ones(6))


@pytest.mark.parametrize("classes", [4, 1500])
@pytest.mark.parametrize("recipe", [RANDAUGMENT, MIXUP])
def test_a_training_step_takes_what_it_augments(recipe: str, classes: int) -> None:
    device = torch.device("cpu")
    step = TrainingStep("resnet18", "fp32", device, transforms=DeviceTransforms(recipe, 0, classes, device))
    before = next(step._model.parameters()).detach().clone()
    step.run(IMAGES, LABELS)
    assert not torch.equal(next(step._model.parameters()), before)
    assert step._samples == 6
