"""WebDataset shards as a data set: tar files whose members ``KEY.jpg`` and ``KEY.cls`` are an image and its label.

The members are found once, by the tar headers alone, and then read at their offsets as if each were a file: so any
loader can read them in any order, as indexed WebDataset readers do. WebDataset's own sequential reading is not measured
in this way, which matters for disks and networks that are slow at small reads.

Why ``tarfile`` and not webdataset: it gives each member's offset; webdataset streams whole samples instead.

Source of the format: the WebDataset documentation (files of a sample lie together and share everything before the first
dot of the base name) and POSIX.1-1988 ustar.
"""

from __future__ import annotations

import os
import random
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipetune.datasets.folder import DEFAULT_LIMIT_IMAGES, ENDINGS, Progress, throttle
from pipetune.datasets.image_header import NotAnImage, read_header
from pipetune.datasets.image_tail import why_incomplete
from pipetune.datasets.index import MAX_SKIPPED_KEPT, ImageFile, ImageSet
from pipetune.errors import UsageError

SHARD_ENDING = ".tar"
#: Tar files that cannot be read from the middle.
COMPRESSED = (".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")
_LABEL = "cls"
#: Largest label file, which holds a number or a name.
_MAX_LABEL_BYTES = 256
#: Labels that are numbers mean as many classes as the largest; from this on they are names.
_MAX_CLASSES = 1_000_000


@dataclass(frozen=True, slots=True)
class _Member:
    shard: str
    name: str
    start: int
    size: int
    label: str


def find_shards(path: str) -> list[str]:
    """The shards that a path names: a tar file, or a folder with tar files and neither images nor folders in it.

    Raises:
        UsageError: they are compressed.
    """
    if not os.path.exists(path):
        return []  # scan_folder reports it
    try:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else [os.path.basename(path)]
    except OSError:
        return []  # scan_folder reports why
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    lower = [name.lower() for name in names]
    images = any(name.endswith(ENDINGS) for name in lower)
    packed = [name for name, plain in zip(names, lower, strict=True) if plain.endswith(COMPRESSED)]
    found = [os.path.join(folder, name) for name in names if name.lower().endswith(SHARD_ENDING)]
    if images or any(os.path.isdir(os.path.join(folder, name)) for name in names):
        return []
    if packed and not found:
        raise UsageError(
            f"{os.path.join(folder, packed[0])!r} is compressed, so its images cannot be read one by one",
            hint="unpack the shards: gunzip *.tar.gz (JPEGs do not get smaller anyway)",
        )
    return found


def scan_shards(
    root: str, shards: list[str], *, limit_images: int = DEFAULT_LIMIT_IMAGES, limit_bytes: int, seed: int,
    progress: Progress | None = None,
) -> ImageSet:  # fmt: skip
    """The images in these shards.

    Labels are those of ``KEY.cls``: integers as they are, or names in their order; without them the folder in the
    member's name, and one class where there is none. Where a limit is exceeded, whole shards are used in a random order
    until it is reached, because each one is a random part of the data set.

    Args:
        root: what the user named.
        shards: from :func:`find_shards`.
        seed: of the order of the shards where not all are used.

    Raises:
        UsageError: none of the images can be used.
    """
    report = throttle(progress)
    root = os.path.abspath(root)
    skipped: list[tuple[str, str]] = []
    members: list[_Member] = []
    for number, shard in enumerate(shards, 1):
        try:
            members += _members(os.path.abspath(shard))
        except (OSError, tarfile.TarError) as error:
            skipped.append((shard, f"not a tar file: {error}" if isinstance(error, tarfile.TarError) else str(error)))
        report("reading shards", number, len(shards))
    chosen = _within(members, limit_images, limit_bytes, seed)
    classes, labels = _classes([member.label for member in members])
    images: list[ImageFile] = []
    for member in chosen:
        try:
            images.append(replace(_image(member), label=labels[member.label]))
        except (NotAnImage, OSError) as error:
            skipped.append((f"{member.shard}/{member.name}", getattr(error, "reason", None) or str(error)))
        if len(images) % 64 == 0:
            report("reading headers", len(images), len(chosen))
    report("reading headers", len(images), len(images))
    if not images:
        first = f" (the first: {skipped[0][0]!r}: {skipped[0][1]})" if skipped else ""
        raise UsageError(
            f"no images in {len(shards)} {'shard' if len(shards) == 1 else 'shards'} of {root!r}{first}",
            hint=f"name tar files with members that end in {' '.join(ENDINGS)}",
        )
    return ImageSet(
        name=os.path.basename(root) or root, root=root, classes=classes, found_images=len(members),
        images=tuple(sorted(images, key=lambda image: (image.label, image.path))),
        skipped=tuple(skipped[:MAX_SKIPPED_KEPT]), skipped_count=len(skipped),
    )  # fmt: skip


def _members(shard: str) -> Iterator[_Member]:
    """The images of one shard; only tar headers and label files are read."""
    images: list[_Member] = []
    labels: dict[str, str] = {}
    with tarfile.open(shard, "r:") as tar:
        for info in tar:
            if not info.isfile():
                continue
            folder, base = os.path.split(info.name)
            stem, _, ending = base.partition(".")
            key = os.path.join(folder, stem)
            if ending.lower() == _LABEL and info.size <= _MAX_LABEL_BYTES:
                file = tar.extractfile(info)
                labels[key] = file.read().decode("utf-8", "replace").strip() if file else ""
            elif base.lower().endswith(ENDINGS):
                images.append(_Member(shard, info.name, info.offset_data, info.size, folder.partition("/")[0]))
            tar.members = []  # type: ignore[attr-defined]  # or it would keep them all
    for image in images:
        folder, base = os.path.split(image.name)
        yield replace(image, label=labels.get(os.path.join(folder, base.partition(".")[0]), image.label))


def _image(member: _Member) -> ImageFile:
    """A member as an image, without its label.

    Raises:
        NotAnImage: the member is not an image, or incomplete.
    """
    header = read_header(member.shard, start=member.start)
    incomplete = why_incomplete(member.shard, header.format, member.size, start=member.start)
    if incomplete is not None:
        raise NotAnImage(incomplete)
    return ImageFile(
        path=f"{member.shard}/{member.name}", label=0, size_bytes=member.size, width=header.width, height=header.height,
        orientation=header.orientation, format=header.format, progressive=header.progressive,
        shard=member.shard, start=member.start,
    )  # fmt: skip


def _within(members: list[_Member], limit_images: int, limit_bytes: int, seed: int) -> list[_Member]:
    if len(members) <= limit_images and sum(member.size for member in members) <= limit_bytes:
        return members
    by_shard: dict[str, list[_Member]] = {}
    for member in members:
        by_shard.setdefault(member.shard, []).append(member)
    chosen: list[_Member] = []
    used = 0
    for shard in random.Random(seed).sample(sorted(by_shard), len(by_shard)):
        for member in by_shard[shard]:
            if len(chosen) >= limit_images or (chosen and used + member.size > limit_bytes):
                return chosen
            chosen.append(member)
            used += member.size
    return chosen


def _classes(labels: list[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Class names, and the number of each label."""
    names = sorted(set(labels))
    if names and all(name.isdecimal() and int(name) < _MAX_CLASSES for name in names):
        most = max(int(name) for name in names)
        return tuple(str(number) for number in range(most + 1)), {name: int(name) for name in names}
    return tuple(name or "images" for name in names), {name: number for number, name in enumerate(names)}
