"""Images as they would be with a shorter edge: some of them are made, to know how many bytes they take."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.errors import PipetuneError
from pipetune.explaining.subset import draw_subset

#: So many images are made; a systematic sample by size, whose mean is close to that of all.
_SAMPLE = 32
#: JPEG quality of what is made, which the manual states.
QUALITY = 90
#: EXIF tag.
_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Pixels and bytes of images in the mean."""

    pixels: float
    size_bytes: float
    changed_frac: float = 0.0
    """Share of the images that are made smaller; the others stay as they are."""


def size_of(images: ImageSet) -> Size:
    """As they are."""
    count = len(images.images)
    return Size(
        pixels=sum(image.width * image.height for image in images.images) / count, size_bytes=images.mean_bytes
    )  # fmt: skip


def size_with(images: ImageSet, edge: int) -> Size:
    """With a shorter edge of at most so many pixels.

    Raises:
        PipetuneError: an image cannot be read.
    """
    sample = draw_subset(images, 0, most_images=_SAMPLE).images
    made = [(image, shrunken(image, edge)) for image in sample]
    now = size_of(images)
    # What changes is known of the sample only, so it is the ratio that is used.
    before, after = sum(image.size_bytes for image in sample), sum(size for _, (_, size, _) in made)
    pixels = sum(image.width * image.height for image in sample)
    return Size(
        pixels=now.pixels * sum(count for _, (count, _, _) in made) / pixels,
        size_bytes=now.size_bytes * after / before,
        changed_frac=sum(contents is not None for _, (_, _, contents) in made) / len(made),
    )  # fmt: skip


def shrunken(image: ImageFile, edge: int) -> tuple[int, int, bytes | None]:
    """Pixels, bytes and contents of an image with this shorter edge; contents ``None``: it stays as it is.

    Raises:
        PipetuneError: it cannot be read.
    """
    from PIL import Image

    from pipetune.datasets.pillow_rgb import to_eight_bits

    if min(image.width, image.height) <= edge:
        return image.width * image.height, image.size_bytes, None
    try:
        with Path(image.file).open("rb") as file:
            file.seek(image.start)
            opened = Image.open(io.BytesIO(file.read(image.size_bytes)))
        colour_profile = opened.info.get("icc_profile")
        grey = to_eight_bits(opened)
        kept = grey if grey.mode in ("L", "RGB") else grey.convert("RGB")
        factor = edge / min(opened.size)
        small = kept.resize(
            (max(1, round(opened.width * factor)), max(1, round(opened.height * factor))), Image.Resampling.LANCZOS,
            reducing_gap=3.0,
        )  # fmt: skip
        made, exif = io.BytesIO(), Image.Exif()
        if image.orientation != 1:
            exif[_ORIENTATION] = image.orientation
        small.save(
            made, "JPEG", quality=QUALITY, exif=exif, icc_profile=colour_profile if kept is opened else None
        )  # fmt: skip
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PipetuneError(f"cannot read {image.path}: {error}", hint="is the data set where it was?") from error
    return small.width * small.height, made.tell(), made.getvalue()


def shrink_all(images: Sequence[ImageFile], edge: int, folder: Path) -> tuple[ImageFile, ...]:
    """The same images in a folder, each in a file of its own.

    Raises:
        PipetuneError: an image cannot be read, or the disk refuses.
    """
    found = []
    for number, image in enumerate(images):
        _, _, contents = shrunken(image, edge)
        place = folder / f"{number:06d}.jpg"
        try:
            if contents is None:
                with Path(image.file).open("rb") as file:
                    file.seek(image.start)
                    contents = file.read(image.size_bytes)
            place.write_bytes(contents)
        except OSError as error:
            raise PipetuneError(f"cannot write {place}: {error.strerror}", hint="free some disk space") from error
        found.append(_in_file(image, place, edge, len(contents)))
    return tuple(found)


def _in_file(image: ImageFile, place: Path, edge: int, size: int) -> ImageFile:
    factor = min(1.0, edge / min(image.width, image.height))
    return replace(
        image, path=str(place), size_bytes=size, width=max(1, round(image.width * factor)), start=0, shard=None,
        height=max(1, round(image.height * factor)), format=image.format if factor == 1 else "jpeg",
        progressive=image.progressive if factor == 1 else False,
    )  # fmt: skip
