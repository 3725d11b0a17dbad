"""Operations in a worker and on a device: the pixels are those of torchvision's own classes."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")
v2 = pytest.importorskip("torchvision.transforms.v2", reason="operations are torchvision's")

from torchvision.transforms import InterpolationMode  # noqa: E402

from pipetune.augmentation import draws as drawing  # noqa: E402
from pipetune.augmentation.draws import OPERATIONS, Draws, draw  # noqa: E402
from pipetune.augmentation.in_worker import OPERATE, WorkerAugmenter, use_one_thread  # noqa: E402
from pipetune.augmentation.on_device import apply_draws, augment_batch  # noqa: E402
from pipetune.augmentation.recipes import COLORJITTER, RANDAUGMENT, TRIVIALAUGMENT  # noqa: E402

COUNT, SIZE = 8, 48
#: Share of values that may differ, by one grey level: a blend adds up in another order.
ROUNDED = 0.005


def photos() -> torch.Tensor:
    """Smooth shapes with some noise, as photographs have; the last one is of one grey only."""
    noise = torch.Generator().manual_seed(0)
    coarse = torch.rand(COUNT, 3, 6, 6, generator=noise)
    smooth = torch.nn.functional.interpolate(coarse, size=(SIZE, SIZE), mode="bilinear")
    images = (255 * smooth + 5 * torch.randn(COUNT, 3, SIZE, SIZE, generator=noise)).clamp(0, 255).to(torch.uint8)
    images[-1] = 77
    return images


def list_values(operation: str) -> list[float]:
    """From no to the greatest magnitude, with both signs where it has them."""
    number = OPERATIONS.index(operation)
    values, signed = drawing._TRIVIAL.values[number], drawing._TRIVIAL.signed[number]
    chosen = [float(values[round(30 * place / (COUNT - 1))]) for place in range(COUNT)]
    return [-value if signed and place % 2 else value for place, value in enumerate(chosen)]


def torchvisions(image: torch.Tensor, operation: str, value: float) -> torch.Tensor:
    theirs = v2.RandAugment(interpolation=InterpolationMode.BILINEAR)
    done: torch.Tensor = theirs._apply_image_or_video_transform(
        image, operation, value, interpolation=InterpolationMode.BILINEAR, fill=theirs._fill
    )
    return done


def nearly_equal(found: torch.Tensor, expected: torch.Tensor) -> bool:
    difference = (found.int() - expected.int()).abs()
    return int(difference.max()) <= 1 and float((difference > 0).float().mean()) <= ROUNDED


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_is_torchvisions(operation: str) -> None:
    images, values = photos(), list_values(operation)
    expected = torch.stack([torchvisions(*pair) for pair in zip(images, [operation] * COUNT, values, strict=True)])
    in_worker = [OPERATE[operation](image, value) for image, value in zip(images, values, strict=True)]
    assert torch.equal(torch.stack(in_worker), expected)
    number = OPERATIONS.index(operation)
    on_device = apply_draws(images, Draws(np.full((1, COUNT), number), np.array([values])))
    assert nearly_equal(on_device, expected)
    assert torch.equal(images, photos()), "images that are given are left as they are"


@pytest.mark.parametrize("recipe", [RANDAUGMENT, TRIVIALAUGMENT, COLORJITTER])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_device_does_to_each_image_what_a_worker_does(recipe: str, channels_last: bool) -> None:
    images, indices = photos(), [900 + place for place in range(COUNT)]
    one_by_one = WorkerAugmenter(recipe, 4)
    expected = torch.stack(
        [torch.from_numpy(one_by_one(index, image.numpy())) for index, image in zip(indices, images, strict=True)]
    )
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    found = augment_batch(images, recipe, 4, indices)
    # The order of rounds matters: two operations of one image come one after the other.
    assert (found.int() - expected.int()).abs().float().mean() < 0.1
    assert not torch.equal(found, images)
    one = augment_batch(images[3:4], recipe, 4, indices[3:4])
    assert nearly_equal(one, found[3:4]), "an image's operations do not depend on its batch"


def test_color_jitter_is_torchvisions() -> None:
    images = photos()[:1]
    draws = draw(COLORJITTER, 0, [1], SIZE)
    expected = images[0]
    adjust = {"Brightness": "brightness", "Contrast": "contrast", "Color": "saturation"}
    for number, value in zip(draws.operations[:, 0], draws.values[:, 0], strict=True):
        function = getattr(v2.functional, f"adjust_{adjust[OPERATIONS[number]]}")
        expected = function(expected, 1 + value)
    assert torch.equal(torch.from_numpy(WorkerAugmenter(COLORJITTER, 0)(1, images[0].numpy())), expected)


def test_an_augmenter_goes_to_another_process() -> None:
    image = photos()[0].numpy()
    one = WorkerAugmenter(RANDAUGMENT, 9)
    assert (pickle.loads(pickle.dumps(one))(5, image) == one(5, image)).all()


def test_loader_threads_compute_alone_and_others_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    counts: list[int] = []

    def work() -> None:
        use_one_thread()
        counts.append(torch.get_num_threads())

    try:
        for target in (work, lambda: counts.append(torch.get_num_threads())):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        use_one_thread()  # the main thread keeps what it has
        assert (counts, torch.get_num_threads()) == ([1, 3], 3)
    finally:
        torch.set_num_threads(before)
