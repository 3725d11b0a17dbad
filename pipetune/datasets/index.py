"""The index of images: made once by the parent, written to one file, and read by every child.

Format: one JSON object, one short list per image: 50,000 images are about 3 MB and load in a quarter of a second.
Paths are written relative to the root where they lie below it. A path that is not UTF-8 is kept as Python keeps it
(surrogate escapes) and written as ASCII, so it comes back byte for byte.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import json
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipetune.datasets.image_header import MAX_PIXELS
from pipetune.errors import PipetuneError
from pipetune.records.audit import Audit
from pipetune.records.convert import from_dict
from pipetune.records.sweep import SCHEMA
from pipetune.store.files import OWN_FILE, replace_file
from pipetune.store.regular import read_whole

#: The format of images that are stored as pixels: uint8, height x width x 3, without a header.
RAW = "raw"
#: Skipped files whose names are kept; the rest are only counted.
MAX_SKIPPED_KEPT = 200
#: Largest index that is read: ten million images.
MOST_BYTES = 1 << 30
#: Sizes, places and counts are below it, and so are their sums in 64 bits.
_MOST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """One image of a data set, as its header describes it."""

    path: str
    """Absolute. Bytes that are not UTF-8 are surrogate escapes, as :func:`os.fsdecode` makes them."""
    label: int
    """Index into :attr:`ImageSet.classes`."""
    size_bytes: int
    width: int
    """As stored (px), before the orientation."""
    height: int
    orientation: int
    """EXIF orientation, 1..8; 5..8 swap width and height."""
    format: str
    """``jpeg``, ``png`` or ``webp``, by content; :data:`RAW` for pixels in shards."""
    progressive: bool | None
    """Coded in several scans (JPEG) or interlaced (PNG), which takes longer to decode; ``None``: neither."""
    shard: str | None = None
    """The tar file that it lies in, absolute; ``path`` is a name then: the tar file's path and the member's."""
    start: int = 0
    """Where in the shard its bytes begin."""
    exif_disputed: bool = False
    """Libraries read different orientations in it, so a decoder has to be told :attr:`orientation`."""

    @property
    def file(self) -> str:
        """The file that has its bytes."""
        return self.shard or self.path

    @property
    def upright_size(self) -> tuple[int, int]:
        """(width, height) in px after the orientation was applied."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSet:
    """The images that a run uses, and what else was found where they lie."""

    name: str
    root: str
    """Absolute path of the folder."""
    classes: tuple[str, ...]
    """Class names in the order of their labels."""
    images: tuple[ImageFile, ...]
    found_images: int
    """Files with an image's ending before any subset was drawn."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(path, reason) of the first files and directories that could not be used."""
    skipped_count: int = 0
    """All of them, also those whose names were not kept."""
    plain: bool = False
    """torchvision's ``ImageFolder`` (or a list of the files, without class folders) with each decoder's usual call
    gives these images, labels and pixels: nothing was skipped, no class is empty, and no image is odd."""
    empty_classes: tuple[str, ...] = ()
    """Folders beside the classes that hold no image: ``ImageFolder`` refuses them, or counts them as classes."""
    undecodable: tuple[str, ...] = ()
    """Paths of images that were left out during a run, because a decoder could not decode them."""
    audit: Audit | None = None
    """The account of what was found; ``None``: an earlier version wrote the index, or the loader is the user's own."""

    @property
    def is_nested(self) -> bool:
        """Some images lie in folders below their class folder, where DALI's reader does not look."""
        folders = {os.path.join(self.root, name) for name in self.classes} | {self.root}
        return any(os.path.dirname(image.path) not in folders for image in self.images)

    @property
    def usable_count(self) -> int:
        """Images that could be used, those outside of the subset included."""
        return self.found_images - self.skipped_count if self.audit is None else self.audit.used

    @property
    def files(self) -> list[str]:
        """The files that the images in use lie in, each once."""
        return list(dict.fromkeys(image.file for image in self.images))

    @property
    def in_shards(self) -> bool:
        """They lie in tar files."""
        return any(image.shard is not None for image in self.images)

    @property
    def is_raw(self) -> bool:
        """They are stored as pixels."""
        return any(image.format == RAW for image in self.images)

    @property
    def total_bytes(self) -> int:
        """Bytes of the images in use."""
        return sum(image.size_bytes for image in self.images)

    @property
    def mean_bytes(self) -> float:
        """Mean file size of the images in use; 0 where there are none."""
        return self.total_bytes / len(self.images) if self.images else 0.0

    @property
    def median_size(self) -> tuple[int, int]:
        """Median width and median height (px, upright) of the images in use; (0, 0) where there are none."""
        if not self.images:
            return (0, 0)
        sizes = [image.upright_size for image in self.images]
        widths, heights = zip(*sizes, strict=True)
        return round(statistics.median(widths)), round(statistics.median(heights))

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change when an image in use is added, removed, renamed or gets another size.

        Names are relative to the root, so a copy of the folder has the same fingerprint. The order does not matter.
        """
        digest = hashlib.sha256()
        for name, size in sorted((_shorten(image.path, self.root), image.size_bytes) for image in self.images):
            digest.update(os.fsencode(name) + b"\0%d\0" % size)
        return digest.hexdigest()[:16]


def replace_images(image_set: ImageSet, bad: Mapping[int, str]) -> ImageSet:
    """The set without some images: each is replaced by the next good one, so that count and order stay.

    Args:
        bad: position in ``images`` -> why it cannot be used.

    Raises:
        PipetuneError: none would be left.
    """
    good = [position for position in range(len(image_set.images)) if position not in bad]
    if not good:
        raise PipetuneError(f"none of the {len(bad)} images can be decoded", hint="is this the right folder?")
    images = list(image_set.images)
    for position in bad:
        images[position] = image_set.images[good[bisect.bisect(good, position) % len(good)]]
    # A good image may stand in several places by now, in place of others that were bad.
    replaced = tuple({image_set.images[position].path: reason for position, reason in sorted(bad.items())}.items())
    return dataclasses.replace(
        image_set, images=tuple(images), skipped=(*replaced, *image_set.skipped)[:MAX_SKIPPED_KEPT],
        skipped_count=image_set.skipped_count + len(replaced), plain=False,
        undecodable=(*image_set.undecodable, *(path for path, _ in replaced)),
    )  # fmt: skip


def write_index(path: str, image_set: ImageSet) -> None:
    """Write the index so that a reader sees either the old file or the whole new one, even after a power cut.

    Raises:
        PipetuneError: the file could not be written; nothing is left behind.
    """
    text = json.dumps(pack_index(image_set), ensure_ascii=True, separators=(",", ":"))
    replace_file(Path(path), [text.encode("ascii")], mode=OWN_FILE)


def read_index(path: str) -> ImageSet:
    """The reverse of :func:`write_index`.

    Raises:
        PipetuneError: there is no such file, or it is not an index that this version reads.
    """
    try:
        return unpack_index(json.loads(read_whole(path, MOST_BYTES).decode("ascii")))
    except OSError as error:
        raise PipetuneError(f"cannot read the image index {path!r}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise PipetuneError(
            f"{path!r} is not an image index of format {SCHEMA} ({type(error).__name__})",
            hint="start a new run, which writes it again",
        ) from error


def pack_index(image_set: ImageSet) -> dict[str, Any]:
    """What :func:`write_index` writes, as JSON can hold it."""
    absent = () if image_set.in_shards else _SHARD_FIELDS
    if not any(image.exif_disputed for image in image_set.images):
        absent = (*absent, "exif_disputed")
    columns = [name for name in _IMAGE_FIELDS if name not in absent]
    rows = [[getattr(image, name) for name in columns] for image in image_set.images]
    paths = [columns.index(name) for name in _PATH_FIELDS if name in columns]
    for row in rows:
        for column in paths:
            row[column] = row[column] and _shorten(row[column], image_set.root)
    rest = {name: getattr(image_set, name) for name in _SET_FIELDS if name not in ("images", "audit")}
    rest["audit"] = None if image_set.audit is None else dataclasses.asdict(image_set.audit)
    return {"schema": SCHEMA, "columns": columns, **rest, "images": rows}


def unpack_index(data: Any) -> ImageSet:
    """The reverse of :func:`pack_index`; raises what a malformed one makes Python raise."""
    if data["schema"] != SCHEMA:
        raise ValueError(data["schema"])
    root, columns = data["root"], data["columns"]
    for row in data["images"]:
        for column, name in enumerate(columns):
            if name in _PATH_FIELDS and row[column]:
                row[column] = os.path.join(root, row[column])
    known = [(column, name) for column, name in enumerate(columns) if name in _IMAGE_FIELDS]
    images = tuple(ImageFile(**{name: row[column] for column, name in known}) for row in data["images"])
    found = ImageSet(
        name=data["name"],
        root=root,
        classes=tuple(data["classes"]),
        images=images,
        found_images=data["found_images"],
        skipped=tuple((path, reason) for path, reason in data["skipped"]),
        skipped_count=data["skipped_count"],
        plain=data["plain"],
        empty_classes=tuple(data["empty_classes"]),
        undecodable=tuple(data["undecodable"]),
        audit=None if data.get("audit") is None else from_dict(Audit, data["audit"]),
    )
    _check(found)
    return found


def _check(found: ImageSet) -> None:
    """Refuse an index that nobody has written who wrote it as :func:`_pack` does: compiled code relies on it.

    Raises:
        ValueError: a value is of another type, a number out of range, or some images are in shards and others are not.
    """
    lists = (found.classes, found.empty_classes, found.undecodable)
    texts = (
        found.name,
        found.root,
        *(text for texts in lists for text in texts),
        *(text for pair in found.skipped for text in pair),
    )
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name is no text")
    if not all(type(count) is int and 0 <= count < _MOST for count in (found.found_images, found.skipped_count)):
        raise ValueError("a count is none")
    for image in found.images:
        numbers = (image.label, image.size_bytes, image.width, image.height, image.orientation, image.start)
        names = isinstance(image.path, str) and isinstance(image.format, str)
        if not names or not all(type(number) is int for number in numbers):
            raise ValueError(f"{image.path!r} has a value of another type")
        if not isinstance(image.progressive, bool | None) or not isinstance(image.exif_disputed, bool):
            raise ValueError(f"{image.path!r} has a value of another type")
        for path in (image.path, image.shard):
            if path is not None and (not path or b"\0" in os.fsencode(path)):
                raise ValueError(f"{path!r} is no path")
        places = 0 < image.size_bytes < _MOST and 0 <= image.start < _MOST
        sizes = places and image.width > 0 and image.height > 0 and image.width * image.height <= MAX_PIXELS
        if not sizes or not 1 <= image.orientation <= 8 or not 0 <= image.label < len(found.classes):
            raise ValueError(f"{image.path!r} has a number that is out of range")
        if image.format == RAW and (image.size_bytes != 3 * image.width * image.height or image.orientation != 1):
            raise ValueError(f"{image.path!r} has another size than its pixels")
    if len({image.format == RAW for image in found.images}) > 1 or (found.is_raw and not found.in_shards):
        raise ValueError("some images are pixels and others are not")
    if len({image.shard is None for image in found.images}) > 1:
        raise ValueError("some images are in shards and others are not")


def _shorten(path: str, root: str) -> str:
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else path


_IMAGE_FIELDS = [field.name for field in dataclasses.fields(ImageFile)]
_PATH_FIELDS = ("path", "shard")
#: Left out where every image is a file of its own.
_SHARD_FIELDS = ("shard", "start")
_SET_FIELDS = [field.name for field in dataclasses.fields(ImageSet)]
