"""Runs printed code on folders, and says which images, labels and directions came out of one epoch.

Every image of these folders has its number in red, a ramp to the right in green and a ramp downwards in blue: a random
crop of any size shows which image it is, and whether it was turned.
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from typing import Any

import numpy as np
from PIL import Image

from pipetune.records.imagenet import MEAN, STD

#: Grey levels between the numbers of two images.
STEP = 12
_EDGES = (128, 96)
_TURNED, _FLAT = 4.0, 0.05


def picture(number: int) -> Image.Image:
    """The image of a number, 1..20."""
    width, height = _EDGES
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = number * STEP
    pixels[..., 1] = np.linspace(60, 200, width)[None, :]
    pixels[..., 2] = np.linspace(120, 122, height)[:, None]
    return Image.fromarray(pixels)


def encoded(number: int, form: str = "JPEG", **options: Any) -> bytes:
    """A file with the image of a number."""
    out = io.BytesIO()
    if form == "JPEG":
        options = {"quality": 95, "subsampling": 0, **options}
    picture(number).save(out, form, **options)
    return out.getvalue()


def describe(pixels: Any, label: int) -> str:
    """What a sample is: its label, number and the direction of its ramp.

    Args:
        pixels: ``[3, height, width]``, grey levels.
    """
    red, green = np.asarray(pixels, float)[:2]
    down, right = (np.abs(np.diff(green, axis=axis)).mean() for axis in (0, 1))
    is_flat = max(down, right) < _FLAT
    direction = "grey" if is_flat else "right" if right > down else "down"
    return f"class {label}: {round(float(red.mean()) / STEP)} {direction}"


def read_epoch(loader: Any) -> dict[str, int]:
    """The samples of one epoch of a loader of batches of one, and how often each came."""
    seen: Counter[str] = Counter()
    for batch in loader:
        one = batch[0] if isinstance(batch[0], dict) else {"images": batch[0], "labels": batch[1]}
        images = one["images"].float().numpy()
        for image, label in zip(images, one["labels"].reshape(-1).tolist(), strict=True):
            levels = (image * np.array(STD)[:, None, None] + np.array(MEAN)[:, None, None]) * 255
            seen[describe(levels, int(label))] += 1
    return dict(sorted(seen.items()))


def main(codes: dict[str, str]) -> None:
    """Run each and print, as JSON, what came out of it or the error."""
    results: dict[str, Any] = {}
    for name, code in codes.items():
        names: dict[str, Any] = {"__name__": "__main__"}
        try:
            exec(compile(code, name, "exec"), names)
            results[name] = read_epoch(names["loader"])
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
        if hasattr(names.get("loader"), "close"):
            names["loader"].close()
    print(json.dumps(results))


if __name__ == "__main__":
    main(json.load(sys.stdin))
