"""How close a pack's training crops are to the sources', and how many of them are enlarged."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipetune.datasets.image_header import NotAnImage
from pipetune.packing.pixels import Rejected, upright_rgb
from pipetune.records.pack import Fidelity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL import Image

#: Of random training crops, as torchvision's RandomResizedCrop has them by default: share of the area, aspect ratio.
_AREA, _LOG_RATIO = (0.08, 1.0), math.log(4 / 3)
#: Crops of each image.
_EACH = 4
#: Crops that are equal have no PSNR; this stands for it (dB).
_MOST_DB = 99.0
_WINDOW = 8
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


def enlarged_frac(sizes: Sequence[tuple[int, int]], crop: int) -> float:
    """Share of random training crops that have fewer pixels than ``crop`` in one direction, so that they are enlarged.

    A crop of area ``s`` (uniform) and aspect ratio ``exp(u)`` (``u`` uniform) of an image of ``w x h`` has a shorter
    edge of ``sqrt(s · w · h / exp(|u|))``.
    """
    if not sizes:
        return 0.0
    low, high = _AREA
    steps = [_LOG_RATIO * (step + 0.5) / 32 for step in range(32)]
    found = [
        min(1.0, max(0.0, (crop * crop * math.exp(u) / (width * height) - low) / (high - low)))
        for width, height in sizes
        for u in steps
    ]
    return sum(found) / len(found)


def compare_crops(pairs: Sequence[tuple[bytes, bytes]], crop: int, *, raw: bool = False) -> Fidelity | None:
    """Random training crops of a source and of what was packed, resized alike; ``None``: there is nothing to compare.

    Args:
        pairs: (source, packed), whole files.
        crop: edge of the crops (px).
        raw: packed are the pixels of the square in the middle, of which the crops are then.
    """
    import numpy as np

    psnr: list[float] = []
    ssim: list[float] = []
    draw = random.Random(0)
    for source, packed in pairs:
        try:
            before = upright_rgb(source)
            images = [_middle(before), _square(packed)] if raw else [before, upright_rgb(packed)]
        except (Rejected, NotAnImage):  # libjpeg takes some that Pillow does not
            continue
        for _ in range(_EACH):
            box = _box(draw, *images[0].size)
            one, other = (_cropped(image, box, crop) for image in images)
            error = float(np.mean((one - other) ** 2))
            psnr.append(_MOST_DB if error == 0 else min(_MOST_DB, 10 * math.log10(255**2 / error)))
            ssim.append(_ssim(one.mean(axis=2), other.mean(axis=2)))
    if not psnr:
        return None
    return Fidelity(
        crop=crop, crops=len(psnr), psnr_db=float(np.mean(psnr)), psnr_db_10=float(np.percentile(psnr, 10)),
        ssim=float(np.mean(ssim)),
    )  # fmt: skip


def _middle(image: Image.Image) -> Image.Image:
    edge = min(image.size)
    left, top = (image.width - edge) // 2, (image.height - edge) // 2
    return image.crop((left, top, left + edge, top + edge))


def _square(pixels: bytes) -> Image.Image:
    from PIL import Image

    edge = math.isqrt(len(pixels) // 3)
    return Image.frombytes("RGB", (edge, edge), pixels)


def _box(draw: random.Random, width: int, height: int) -> tuple[float, float, float, float]:
    """A random crop, as shares of the edges: left, top, right, bottom."""
    for _ in range(10):
        area = draw.uniform(*_AREA) * width * height
        ratio = math.exp(draw.uniform(-_LOG_RATIO, _LOG_RATIO))
        wide, high = math.sqrt(area * ratio) / width, math.sqrt(area / ratio) / height
        if wide <= 1 and high <= 1:
            left, top = draw.uniform(0, 1 - wide), draw.uniform(0, 1 - high)
            return left, top, left + wide, top + high
    return 0.0, 0.0, 1.0, 1.0


def _cropped(image: Image.Image, box: tuple[float, float, float, float], crop: int) -> npt.NDArray[np.float64]:
    import numpy as np
    from PIL import Image

    width, height = image.size
    edges = (box[0] * width, box[1] * height, box[2] * width, box[3] * height)
    return np.asarray(image.resize((crop, crop), Image.Resampling.BILINEAR, box=edges), np.float64)


def _ssim(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Mean structural similarity over windows that do not overlap."""
    edge = len(one) // _WINDOW * _WINDOW
    if edge == 0:
        return 1.0

    def windows(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
        parts = image[:edge, :edge].reshape(edge // _WINDOW, _WINDOW, edge // _WINDOW, _WINDOW)
        return parts.swapaxes(1, 2).reshape(-1, _WINDOW * _WINDOW)

    x, y = windows(one), windows(other)
    mean_x, mean_y = x.mean(axis=1), y.mean(axis=1)
    both = ((x - mean_x[:, None]) * (y - mean_y[:, None])).mean(axis=1)
    top = (2 * mean_x * mean_y + _C1) * (2 * both + _C2)
    bottom = (mean_x**2 + mean_y**2 + _C1) * (x.var(axis=1) + y.var(axis=1) + _C2)
    return float((top / bottom).mean())
