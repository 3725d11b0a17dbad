"""The images that the stages of a loader are measured on: few enough to lie in memory decoded. Pure."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from pipetune.datasets.index import ImageFile, ImageSet

#: Most images, and the memory that all of them may take decoded (bytes).
MOST_IMAGES, MOST_BYTES = 512, 512 << 20
#: Fewer images than this are worth a remark: the stages' costs are those of these images.
FEW_IMAGES = 32


def draw_subset(
    images: ImageSet, seed: int, *, most_images: int = MOST_IMAGES, most_bytes: int = MOST_BYTES
) -> ImageSet:  # fmt: skip
    """Some images whose files are as large as those of all: every n-th in the order of size, from a random one on.

    What decoding costs depends on the sizes of image and file more than on anything else, so such a systematic sample
    has a mean closer to that of all images than a random one (Cochran, "Sampling Techniques", ch. 8).

    Args:
        seed: of the first one's place.
        most_bytes: that they may take together, decoded; one is drawn in any case.
    """
    count = min(len(images.images), most_images)
    ordered = sorted(images.images, key=lambda image: (image.size_bytes, image.path))
    decoded = sum(map(decoded_bytes, ordered)) / max(1, len(ordered))
    count = max(1, min(count, int(most_bytes / decoded) if decoded else count))
    step = len(ordered) / count
    first = Random(seed).random()
    return replace(images, images=tuple(ordered[int((first + place) * step)] for place in range(count)))


def decoded_bytes(image: ImageFile) -> int:
    """Memory of the decoded image: as Pillow holds it, four bytes per pixel."""
    return 4 * image.width * image.height
