"""Shards as a data set: few large files that hold many images each, in one of several formats.

The images are found once, by the headers alone, and then read at their offsets as if each were a file: so any loader
can read them in any order, as indexed readers do. Sequential reading, as WebDataset and TensorFlow do it, is not
measured in this way, which matters for disks and networks that are slow at small reads.
"""

from __future__ import annotations

import json
import operator
import os
import random
from collections.abc import Callable
from dataclasses import replace

from pipetune.datasets.folder import DEFAULT_LIMIT_IMAGES, throttle
from pipetune.datasets.folder_walk import ENDINGS, Progress
from pipetune.datasets.image_header import NotAnImage
from pipetune.datasets.index import RAW, ImageFile, ImageSet
from pipetune.datasets.mds import members_of_mds
from pipetune.datasets.raw_pixels import PIXELS, members_of_pixels
from pipetune.datasets.recordio import members_of_records
from pipetune.datasets.shard_members import Found, Member, Problems
from pipetune.datasets.tar_shards import members_of_tar
from pipetune.datasets.tfrecord import members_of_tfrecord
from pipetune.datasets.usable_image import read_usable
from pipetune.errors import UsageError
from pipetune.store.regular import read_whole

#: Ending -> what finds the images in such a file.
READERS: dict[str, Callable[[str], Found]] = {
    ".tar": members_of_tar, ".rec": members_of_records, ".mds": members_of_mds, ".tfrecord": members_of_tfrecord,
    PIXELS: members_of_pixels,
}  # fmt: skip
#: Endings behind those of shards, which cannot be read from the middle then; and short ones of tar files.
_COMPRESSED = (".gz", ".zst", ".zstd", ".xz", ".bz2", ".br", ".snappy")
_COMPRESSED_TAR = (".tgz", ".txz", ".tbz2", ".tzst")
#: Names of the classes, where pipetune has packed the shards.
_CLASSES = "classes.json"
_MOST_CLASSES_BYTES = 64 << 20
#: Labels that are numbers mean as many classes as the largest; from this on they are names.
_MAX_CLASSES = 1_000_000


def find_shards(path: str) -> list[str]:
    """The shards that a path names: one, or a folder with shards of one format and neither images nor folders in it.

    Raises:
        UsageError: some are compressed and not there unpacked as well, or they are of several formats.
    """
    if not os.path.exists(path):
        return []  # scan_folder reports it
    try:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else [os.path.basename(path)]
    except OSError:
        return []  # scan_folder reports why
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    images = any(name.lower().endswith(ENDINGS) for name in names)
    found = [os.path.join(folder, name) for name in names if ending_of(name) is not None]
    if images or any(os.path.isdir(os.path.join(folder, name)) for name in names if not name.startswith(".")):
        return []
    kinds = {ending_of(name) for name in found}
    if len(kinds) > 1:
        raise UsageError(
            f"{path!r} has shards of several formats: {', '.join(sorted(filter(None, kinds)))}",
            hint="name one of them, or a folder with one format",
        )
    # Also beside plain ones: images are never left out in silence.
    there = set(names)
    packed = next((name for name in names if (plain := _unpacked(name)) is not None and plain not in there), None)
    if packed is not None:
        raise UsageError(
            f"{os.path.join(folder, packed)!r} is compressed, so its images cannot be read one by one",
            hint="unpack the shards: gunzip *.tar.gz (JPEGs do not get smaller anyway)"
            + (", or move it to another folder" if found else ""),
        )
    return found


def ending_of(path: str) -> str | None:
    """The ending of a shard's name; ``None``: it is none."""
    return next((ending for ending in READERS if path.lower().endswith(ending)), None)


def _unpacked(name: str) -> str | None:
    """The name of the shard that a compressed file becomes; ``None``: it is none."""
    stem, ending = os.path.splitext(name)
    if ending.lower() in _COMPRESSED_TAR:
        return f"{stem}.tar"
    return stem if ending.lower() in _COMPRESSED and ending_of(stem) is not None else None


def scan_shards(
    root: str, shards: list[str], *, limit_images: int = DEFAULT_LIMIT_IMAGES, limit_bytes: int, seed: int,
    progress: Progress | None = None, strict: bool = False,
) -> ImageSet:  # fmt: skip
    """The images in these shards.

    Labels are integers, or names in their order; in tar files those of ``KEY.cls``. Where no image has any, it is the
    first folder in the member's name, and one class where there is none. Images without a label beside some that have
    one are left out and named: they would be a class that gives the others new numbers. Where a limit is exceeded,
    whole shards are used in a random order until it is reached, because each one is a random part of the data set.

    Args:
        root: what the user named.
        shards: from :func:`find_shards`.
        seed: of the order of the shards where not all are used.
        strict: for a training, which has the whole data set: nobody wants to read large images before it begins.

    Raises:
        UsageError: none of the images can be used.
    """
    report = throttle(progress)
    root = os.path.abspath(root)
    skipped = Problems()
    members: list[Member] = []
    labelled = False
    for number, shard in enumerate(shards, 1):
        found, problems, has_labels = READERS[ending_of(shard) or ".tar"](os.path.abspath(shard))
        members += found
        labelled |= has_labels
        for place, reason in problems.kept:
            skipped.add(place, reason)
        skipped.count += problems.count - len(problems.kept)
        report("reading shards", number, len(shards))
    label_of: Callable[[Member], str] = operator.attrgetter("label" if labelled else "folder")
    if labelled or any(map(label_of, members)):
        reason = "has no label" if labelled else "is not in a folder, so it has no class"
        for member in members:
            if not label_of(member):
                skipped.add(f"{member.shard}/{member.name}", reason)
        members = [member for member in members if label_of(member)]
    chosen = _within(members, limit_images, limit_bytes, seed)
    classes, labels = _classes(set(map(label_of, members)), _stored_classes(shards))
    images: list[ImageFile] = []
    for member in chosen:
        try:
            images.append(replace(_image(member, count_scans=not strict), label=labels[label_of(member)]))
        except (NotAnImage, OSError) as error:
            skipped.add(f"{member.shard}/{member.name}", getattr(error, "reason", None) or str(error))
        if len(images) % 64 == 0:
            report("reading headers", len(images), len(chosen))
    report("reading headers", len(images), len(images))
    if not images:
        first = f" (the first: {skipped.kept[0][0]!r}: {skipped.kept[0][1]})" if skipped.kept else ""
        raise UsageError(
            f"no images in {len(shards)} {'shard' if len(shards) == 1 else 'shards'} of {root!r}{first}",
            hint=f"name files that end in {', '.join(READERS)}, with images in them",
        )
    return ImageSet(
        name=os.path.basename(root) or root, root=root, classes=classes, found_images=len(members),
        images=tuple(sorted(images, key=lambda image: (image.label, image.path))),
        skipped=tuple(skipped.kept), skipped_count=skipped.count,
    )  # fmt: skip


def _image(member: Member, *, count_scans: bool) -> ImageFile:
    """A member as an image, without its label.

    Raises:
        NotAnImage: the member is no usable image.
    """
    if member.pixels is not None:
        width, height = member.pixels
        return ImageFile(
            path=f"{member.shard}/{member.name}", label=0, size_bytes=member.size, width=width, height=height,
            orientation=1, format=RAW, progressive=None, shard=member.shard, start=member.start,
        )  # fmt: skip
    header = read_usable(member.shard, member.size, start=member.start, count_scans=count_scans)
    return ImageFile(
        path=f"{member.shard}/{member.name}", label=0, size_bytes=member.size, width=header.width, height=header.height,
        orientation=header.orientation, format=header.format, progressive=header.progressive,
        exif_disputed=header.exif_disputed,
        shard=member.shard, start=member.start,
    )  # fmt: skip


def _within(members: list[Member], limit_images: int, limit_bytes: int, seed: int) -> list[Member]:
    if len(members) <= limit_images and sum(member.size for member in members) <= limit_bytes:
        return members
    by_shard: dict[str, list[Member]] = {}
    for member in members:
        by_shard.setdefault(member.shard, []).append(member)
    chosen: list[Member] = []
    used = 0
    for shard in random.Random(seed).sample(sorted(by_shard), len(by_shard)):
        for member in by_shard[shard]:
            if len(chosen) >= limit_images or (chosen and used + member.size > limit_bytes):
                return chosen
            chosen.append(member)
            used += member.size
    return chosen


def _stored_classes(shards: list[str]) -> tuple[str, ...]:
    """The names of the classes that ``pipetune pack`` has written beside the shards; ``()``: there are none."""
    try:
        names = json.loads(read_whole(os.path.join(os.path.dirname(shards[0]), _CLASSES), _MOST_CLASSES_BYTES))
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _classes(labels: set[str], stored: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Class names, and the number of each label."""
    names = sorted(labels)
    if names and all(name.isdecimal() and int(name) < _MAX_CLASSES for name in names):
        most = max(int(name) for name in names)
        classes = stored if len(stored) > most else tuple(str(number) for number in range(most + 1))
        return classes, {name: int(name) for name in names}
    return tuple(name or "images" for name in names), {name: number for number, name in enumerate(names)}
