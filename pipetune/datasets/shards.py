"""Shards as a data set: few large files that hold many images each, in one of several formats.

The images are found once, by the headers alone, and then read at their offsets as if each were a file: so any loader
can read them in any order, as indexed readers do. Sequential reading, as WebDataset and TensorFlow do it, is not
measured in this way, which matters for disks and networks that are slow at small reads.
"""

from __future__ import annotations

import os
import random
import shlex
from collections.abc import Callable
from dataclasses import replace

from pipetune.datasets.doubtful_classes import find_doubtful_classes
from pipetune.datasets.folder import DEFAULT_LIMIT_IMAGES, throttle
from pipetune.datasets.folder_walk import Progress
from pipetune.datasets.image_header import NotAnImage
from pipetune.datasets.index import RAW, ImageFile, ImageSet
from pipetune.datasets.mds import compare_with_index, members_of_mds
from pipetune.datasets.raw_pixels import PIXELS, members_of_pixels
from pipetune.datasets.recordio import members_of_records
from pipetune.datasets.shard_classes import Classes, find_classes
from pipetune.datasets.shard_members import Found, Member, Tally
from pipetune.datasets.shard_names import (
    MDS,
    RECORDIO,
    SHARD_ENDINGS,
    TAR,
    TFRECORD,
    find_compression,
    find_ending,
    find_missing_numbers,
    refuse_compressed_content,
)
from pipetune.datasets.tar_shards import members_of_tar
from pipetune.datasets.tfrecord import members_of_tfrecord
from pipetune.datasets.usable_image import read_usable
from pipetune.errors import UsageError
from pipetune.records.audit import FOLDER_NAMES, MEMBERS, RECORDS, SAMPLES, Audit

#: Ending -> what finds the images in such a file, and what its members are called.
READERS: dict[str, tuple[Callable[[str], Found], str]] = {
    TAR: (members_of_tar, MEMBERS), RECORDIO: (members_of_records, RECORDS), MDS: (members_of_mds, SAMPLES),
    TFRECORD: (members_of_tfrecord, RECORDS), PIXELS: (members_of_pixels, SAMPLES),
}  # fmt: skip


def scan_shards(
    root: str, shards: list[str], *, limit_images: int = DEFAULT_LIMIT_IMAGES, limit_bytes: int, seed: int,
    progress: Progress | None = None, strict: bool = False,
) -> ImageSet:  # fmt: skip
    """The images in these shards.

    Labels are integers, or names in their order; in tar files those of ``KEY.cls``. Where no image has any, the class
    is a folder in the member's name, and there is one class where there is none. Images without a label beside some
    that have one are left out and named: they would be a class that gives the others new numbers. Where a limit is
    exceeded, whole shards are used in a random order until it is reached, because each one is a random part of the data
    set.

    Args:
        root: what the user named.
        shards: from :func:`pipetune.datasets.shard_names.find_shards`.
        seed: of the order of the shards where not all are used.
        strict: for a training, which has the whole data set: nobody wants to read large images before it begins.

    Raises:
        UsageError: none of the images can be used; a shard is compressed; or labels are not clear.
    """
    report = throttle(progress)
    is_folder, root = os.path.isdir(root), os.path.abspath(root)
    shards = [os.path.abspath(shard) for shard in shards]
    read_members, unit = READERS[find_ending(shards[0]) or TAR]
    tally = Tally()
    members: list[Member] = []
    shards = _leave_out_links(shards, tally)
    if is_folder and read_members is members_of_mds:
        shards = _follow_index(root, shards, tally)
    for path in find_missing_numbers(shards) if is_folder else ():
        tally.report_damage(path, "belongs to the data set by the others' names, and is not there")
    for number, shard in enumerate(shards, 1):
        found = read_members(shard)
        if not found.members and found.tally.damaged and (compression := find_compression(shard)) is not None:
            raise refuse_compressed_content(shard, compression)
        members += found.members
        tally.add(found.tally)
        report("reading shards", number, len(shards))
    if not members:
        raise _no_images(root, shards, tally)
    classes = find_classes(members, tally, shards)
    numbered = list(zip(classes.members, classes.numbers, strict=True))
    images: list[ImageFile] = []
    chosen = _within(numbered, limit_images, limit_bytes, seed)
    for member, label in chosen:
        try:
            images.append(replace(_image(member, count_scans=not strict), label=label))
        except (NotAnImage, OSError) as error:
            tally.reject(f"{member.shard}/{member.name}", getattr(error, "reason", None) or str(error))
        if len(images) % 64 == 0:
            report("reading headers", len(images), len(chosen))
    report("reading headers", len(images), len(images))
    if not images:
        raise _no_images(root, shards, tally)
    unused = len(chosen) - len(images)
    return ImageSet(
        name=os.path.basename(root) or root, root=root, classes=classes.names,
        found_images=len(numbered), images=tuple(sorted(images, key=lambda image: (image.label, image.path))),
        skipped=tuple(tally.kept), skipped_count=tally.count,
        audit=_audit(unit, tally, classes, used=len(numbered) - unused),
    )  # fmt: skip


def _leave_out_links(shards: list[str], tally: Tally) -> list[str]:
    """Each file once: ``latest.tar``, a link to another shard of the folder, has no samples of its own."""
    first: dict[tuple[int, int], str] = {}
    kept: list[str] = []
    for shard in sorted(shards, key=os.path.islink):
        try:
            status = os.stat(shard)
        except OSError:
            kept.append(shard)  # its reader says why
            continue
        same = first.setdefault((status.st_dev, status.st_ino), shard)
        if same is shard:
            kept.append(shard)
        else:
            tally.report_unused(shard, f"is the same file as {same!r}")
    return sorted(kept)


def _follow_index(folder: str, shards: list[str], tally: Tally) -> list[str]:
    """The MDS shards that ``index.json`` names, which are all that streaming reads."""
    differences = compare_with_index(folder, shards)
    for path in differences.missing:
        tally.report_damage(path, "is named in index.json, and is not there")
    for path in differences.unnamed:
        tally.report_unused(path, "is not named in index.json, so streaming does not read it")
    return [shard for shard in shards if shard not in differences.unnamed]


def _audit(unit: str, tally: Tally, classes: Classes, *, used: int) -> Audit:
    return Audit(
        unit=unit, members=tally.members, used=used, rejected=tally.rejected, other=dict(tally.other),
        labels=tally.labels, matched=tally.labels - tally.unmatched, unmatched=tally.unmatched,
        label_source=classes.source, links=tally.links, dotted=tally.dotted, shared_folder=classes.shared_folder,
        doubtful_classes=find_doubtful_classes(classes.names) if classes.source == FOLDER_NAMES else (),
        unread_columns=tuple(sorted(tally.unread_columns)), damaged=tally.damaged,
    )  # fmt: skip


def _no_images(root: str, shards: list[str], tally: Tally) -> UsageError:
    first = f" (the first: {tally.kept[0][0]!r}: {tally.kept[0][1]})" if tally.kept else ""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in tally.other.most_common(3))
    hint = f"name files that end in {', '.join(SHARD_ENDINGS)}, with images in them"
    if tally.other["tar"]:
        hint = f"its members are tar files: unpack it (tar xf {shlex.quote(shards[0])} -C DIR) and name DIR"
    return UsageError(
        f"no images in {len(shards):,} {'shard' if len(shards) == 1 else 'shards'} of {root!r}"
        f"{f', which has {kinds}' if kinds else ''}{first}",
        hint=hint,
    )


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


def _within(
    numbered: list[tuple[Member, int]], limit_images: int, limit_bytes: int, seed: int
) -> list[tuple[Member, int]]:
    """The images, with their labels, that do not exceed the limits."""
    if len(numbered) <= limit_images and sum(member.size for member, _ in numbered) <= limit_bytes:
        return numbered
    by_shard: dict[str, list[tuple[Member, int]]] = {}
    for member, label in numbered:
        by_shard.setdefault(member.shard, []).append((member, label))
    chosen: list[tuple[Member, int]] = []
    used = 0
    for shard in random.Random(seed).sample(sorted(by_shard), len(by_shard)):
        for member, label in by_shard[shard]:
            if len(chosen) >= limit_images or (chosen and used + member.size > limit_bytes):
                return chosen
            chosen.append((member, label))
            used += member.size
    return chosen
