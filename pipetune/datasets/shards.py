"""WebDataset shards as a data set: tar files whose members ``KEY.jpg`` and ``KEY.cls`` are an image and its label.

The members are found once, by the tar headers alone, and then read at their offsets as if each were a file: so any
loader can read them in any order, as indexed WebDataset readers do. WebDataset's own sequential reading is not measured
in this way, which matters for disks and networks that are slow at small reads.

Why ``tarfile`` and not webdataset: it gives each member's offset; webdataset streams whole samples instead.

Source of the format: the WebDataset documentation (files of a sample lie together and share everything before the first
dot of the base name) and POSIX.1-1988 ustar.
"""

from __future__ import annotations

import errno
import io
import os
import random
import stat
import tarfile
from dataclasses import dataclass, replace

from pipetune.datasets.folder import DEFAULT_LIMIT_IMAGES, MAX_FILE_BYTES, throttle
from pipetune.datasets.folder_walk import ENDINGS, Progress
from pipetune.datasets.image_header import NotAnImage
from pipetune.datasets.index import MAX_SKIPPED_KEPT, ImageFile, ImageSet
from pipetune.datasets.usable_image import read_usable
from pipetune.errors import UsageError

SHARD_ENDING = ".tar"
#: Tar files that cannot be read from the middle.
COMPRESSED = (".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")
_LABEL = "cls"
#: Largest label file, which holds a number or a name.
_MAX_LABEL_BYTES = 256
#: Largest header, with all that belongs to it (long names, pax records).
_MAX_HEADER_BYTES = 1 << 20
#: Labels that are numbers mean as many classes as the largest; from this on they are names.
_MAX_CLASSES = 1_000_000
#: So many zeros behind the last member are its end, whatever comes then.
_MOST_ZEROS = 64 << 20


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
    progress: Progress | None = None, strict: bool = False,
) -> ImageSet:  # fmt: skip
    """The images in these shards.

    Labels are those of ``KEY.cls``: integers as they are, or names in their order; without them the folder in the
    member's name, and one class where there is none. Where a limit is exceeded, whole shards are used in a random order
    until it is reached, because each one is a random part of the data set.

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
    skipped: list[tuple[str, str]] = []
    members: list[_Member] = []
    for number, shard in enumerate(shards, 1):
        found, problems = _members(os.path.abspath(shard))
        members += found
        skipped += problems
        report("reading shards", number, len(shards))
    chosen = _within(members, limit_images, limit_bytes, seed)
    classes, labels = _classes([member.label for member in members])
    images: list[ImageFile] = []
    for member in chosen:
        try:
            images.append(replace(_image(member, count_scans=not strict), label=labels[member.label]))
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


class _Headers(io.FileIO):
    """A shard as ``tarfile`` reads it, which asks for as many bytes as a header says."""

    def __init__(self, shard: str) -> None:
        # A named pipe would wait for a writer.
        super().__init__(os.open(shard, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", closefd=True)
        status = os.fstat(self.fileno())
        self.bytes = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "not a regular file")

    def read(self, size: int | None = -1, /) -> bytes:
        """At most what a header may have.

        Raises:
            ValueError: it asks for more, or for everything.
        """
        if size is None or not 0 <= size <= _MAX_HEADER_BYTES:
            raise ValueError(f"a header of {size} bytes")
        return super().read(size) or b""


def _members(shard: str) -> tuple[list[_Member], list[tuple[str, str]]]:
    """The images of one shard, and (place, reason) of what cannot be used; only tar headers and label files are read.

    What stands before damage counts: a shard may be cut off, or be a file that somebody has made up.
    """
    images: list[_Member] = []
    labels: dict[str, str] = {}
    problems: list[tuple[str, str]] = []
    try:
        with _Headers(shard) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            before = -1
            for info in tar:
                if info.offset <= before or info.size < 0:
                    raise tarfile.ReadError("a header that leads backwards")
                before = info.offset
                _take(shard, info, file, images, labels, problems)
                tar.members = []  # type: ignore[attr-defined]  # or it would keep them all
            # tarfile takes any block that is no header for the end.
            if not _ends_at(file, tar.offset):
                raise tarfile.ReadError(f"no header at byte {tar.offset}, and data behind it")
    except tarfile.TarError as error:
        problems.append(
            (shard, f"damaged after {len(images)} images: {error}" if images else f"not a tar file: {error}")
        )
    except OSError as error:
        problems.append((shard, error.strerror or str(error)))
    except (ValueError, OverflowError, MemoryError, RecursionError, TypeError, AttributeError) as error:
        # tarfile does not expect everything that a header can say.
        problems.append((shard, f"damaged after {len(images)} images: {error or type(error).__name__}"))
    found = []
    for image in images:
        folder, base = os.path.split(image.name)
        label = labels.get(os.path.join(folder, base.partition(".")[0]), image.label)
        found.append(replace(image, label=label))
    return found, problems


def _ends_at(file: _Headers, offset: int) -> bool:
    """Whether a shard ends there: with the file, or with zeros, at which :data:`_MOST_ZEROS` bytes are looked at."""
    end = min(file.bytes, offset + _MOST_ZEROS)
    while offset < end:
        piece = os.pread(file.fileno(), min(1 << 20, end - offset), offset)
        if not piece or piece.strip(b"\0"):
            return not piece
        offset += len(piece)
    return True


def _take(
    shard: str, info: tarfile.TarInfo, file: _Headers, images: list[_Member], labels: dict[str, str],
    problems: list[tuple[str, str]],
) -> None:  # fmt: skip
    """Note a member that is an image or a label."""
    folder, base = os.path.split(info.name)
    stem, _, ending = base.partition(".")
    is_label, is_image = ending.lower() == _LABEL, base.lower().endswith(ENDINGS)
    # Links and sparse files have other bytes than stand there.
    if not (is_label or is_image) or info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.sparse is not None:
        return
    if "\0" in info.name:
        problems.append((f"{shard}/{info.name!a}", "its name has a zero byte"))
    elif info.offset_data + info.size > file.bytes:
        problems.append((f"{shard}/{info.name}", "cut off: the shard ends before it"))
    elif is_image and info.size > MAX_FILE_BYTES:
        reason = f"has {info.size:,} bytes, more than {MAX_FILE_BYTES >> 20} MiB"
        problems.append((f"{shard}/{info.name}", reason))
    elif is_image:
        images.append(_Member(shard, info.name, info.offset_data, info.size, folder.partition("/")[0]))
    elif info.size <= _MAX_LABEL_BYTES:
        text = os.pread(file.fileno(), info.size, info.offset_data)
        labels[os.path.join(folder, stem)] = text.decode("utf-8", "replace").strip()


def _image(member: _Member, *, count_scans: bool) -> ImageFile:
    """A member as an image, without its label.

    Raises:
        NotAnImage: the member is no usable image.
    """
    header = read_usable(member.shard, member.size, start=member.start, count_scans=count_scans)
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
