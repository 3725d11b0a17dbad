"""Operations on many images at once, each with a value of its own: what an accelerator is fast at.

What an operation does to an image is what torchvision's function does to that image alone, to the last bit but for
rounding: a blend computes a sum in another order, which changes some values by one grey level.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torchvision.transforms.v2 import functional as F

#: Images uint8 ``[n, 3, size, size]`` and parameters float32 ``[n, PARAMETERS]`` -> images like them, in new memory.
BatchOperation = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

#: Numbers that an operation takes for an image: the six of an affine map, or one.
PARAMETERS = 6
#: Operations that move pixels, which are one operation here: each image has a map of its own.
MOVES = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
AFFINE = "Affine"


def compute_parameters(operation: str, value: float, size: int) -> tuple[float, ...]:
    """The numbers that :data:`BATCH_OPERATIONS` take for one image.

    Args:
        operation: a name in :data:`pipetune.augmentation.draws.OPERATIONS`.
        value: see :attr:`pipetune.augmentation.draws.Draws.values`.
        size: edge of the image (px).
    """
    if operation in MOVES:
        return _inverse_map(operation, value, size)
    if operation == "Posterize":
        bits = int(value)
        return (float(((1 << bits) - 1) << (8 - bits)),)
    if operation == "Solarize":
        return (255.0 * value,)
    return (1.0 + value,)


def _inverse_map(operation: str, value: float, size: int) -> tuple[float, ...]:
    """The map from a place in the result to one in the image, around its centre and in pixels: rows (x, y, 1).

    As torchvision's ``_get_inverse_affine_matrix`` has it for shears from the corner, shifts and rotations.
    """
    half = 0.5 * size
    if operation == "ShearX":
        return 1.0, value, value * half, 0.0, 1.0, 0.0
    if operation == "ShearY":
        return 1.0, 0.0, 0.0, value, 1.0, value * half
    if operation == "TranslateX":
        return 1.0, 0.0, -float(int(value)), 0.0, 1.0, 0.0
    if operation == "TranslateY":
        return 1.0, 0.0, 0.0, 0.0, 1.0, -float(int(value))
    cos, sin = math.cos(math.radians(value)), math.sin(math.radians(value))
    return cos, -sin, 0.0, sin, cos, 0.0


def _affine(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    size = images.shape[-1]
    # Places of pixels around the centre. Not a matrix product, which a device may compute with 10 bits.
    line = torch.arange(size, device=images.device, dtype=torch.float32) - (size - 1) * 0.5
    maps = parameters.view(-1, 2, 3, 1, 1)
    places = maps[:, :, 0] * line + maps[:, :, 1] * line.view(-1, 1) + maps[:, :, 2]
    grid = (places * (2.0 / size)).permute(0, 2, 3, 1)
    moved = torch.nn.functional.grid_sample(images.float(), grid, mode="bilinear", align_corners=False)
    return moved.round_().to(torch.uint8)


def _factors(parameters: torch.Tensor) -> torch.Tensor:
    return parameters[:, 0].view(-1, 1, 1, 1)


def _blended(images: torch.Tensor, others: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    return images.mul(factors).add_(others * (1.0 - factors)).clamp_(0, 255).to(torch.uint8)


def _grey(images: torch.Tensor) -> torch.Tensor:
    red, green, blue = images.unbind(dim=1)
    grey = red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114)
    return grey.floor_().unsqueeze(1)


def _brightness(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    return images.mul(_factors(parameters)).clamp_(0, 255).to(torch.uint8)


def _colour(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    return _blended(images, _grey(images), _factors(parameters))


def _contrast(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    return _blended(images, _grey(images).mean(dim=(1, 2, 3), keepdim=True), _factors(parameters))


def _sharpness(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    if images.shape[-1] <= 2:
        return images
    sharp = images.float()
    inner = sharp[..., 1:-1, 1:-1]
    # Weights 1 around 5, as torchvision has them. Sums of bytes over 13 are never close to a half, whatever the order.
    # Why not a convolution: of batches on the CPU that takes seven times as long.
    sums = torch.nn.functional.avg_pool2d(sharp, 3, stride=1, divisor_override=1)
    blurred = sums.add_(inner, alpha=4.0).div_(13.0).round_()
    inner.add_(blurred.sub_(inner).mul_(1.0 - _factors(parameters)))
    return sharp.clamp_(0, 255).to(torch.uint8)


def _posterize(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    return images & _factors(parameters).to(torch.uint8)


def _solarize(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    return torch.where(images >= _factors(parameters), images.bitwise_not(), images)


#: What each operation does; all of :data:`MOVES` are :data:`AFFINE`, and ``Identity`` is left out.
BATCH_OPERATIONS: dict[str, BatchOperation] = {
    AFFINE: _affine,
    "Brightness": _brightness,
    "Color": _colour,
    "Contrast": _contrast,
    "Sharpness": _sharpness,
    "Posterize": _posterize,
    "Solarize": _solarize,
    "AutoContrast": lambda images, _: F.autocontrast(images),
    "Equalize": lambda images, _: F.equalize(images),
}
