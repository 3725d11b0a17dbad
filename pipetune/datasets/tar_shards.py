"""WebDataset shards: tar files whose members ``KEY.jpg`` and ``KEY.cls`` are an image and its label.

Why ``tarfile`` and not webdataset: it gives each member's offset; webdataset streams whole samples instead.

Source of the format: the WebDataset documentation (files of a sample lie together and share everything before the first
dot of the base name) and POSIX.1-1988 ustar.
"""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import replace

from pipetune.datasets.folder_walk import ENDINGS
from pipetune.datasets.shard_members import Found, Member, Problems, open_shard, too_large

_LABEL = "cls"
#: Largest label file, which holds a number or a name.
_MAX_LABEL_BYTES = 256
#: Largest header, with all that belongs to it (long names, pax records).
_MAX_HEADER_BYTES = 1 << 20
#: So many zeros behind the last member are its end, whatever comes then.
_MOST_ZEROS = 64 << 20


class _Headers(io.FileIO):
    """A shard as ``tarfile`` reads it, which asks for as many bytes as a header says."""

    def __init__(self, shard: str) -> None:
        fd, self.bytes = open_shard(shard)
        super().__init__(fd, "rb", closefd=True)

    def read(self, size: int | None = -1, /) -> bytes:
        """At most what a header may have.

        Raises:
            ValueError: it asks for more, or for everything.
        """
        if size is None or not 0 <= size <= _MAX_HEADER_BYTES:
            raise ValueError(f"a header of {size} bytes")
        return super().read(size) or b""


def members_of_tar(shard: str) -> Found:
    """The images of one shard, and (place, reason) of what cannot be used; only tar headers and label files are read.

    What stands before damage counts: a shard may be cut off, or be a file that somebody has made up.
    """
    images: list[Member] = []
    labels: dict[str, str] = {}
    problems = Problems()
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
        problems.add(shard, f"damaged after {len(images)} images: {error}" if images else f"not a tar file: {error}")
    except OSError as error:
        problems.add(shard, error.strerror or str(error))
    except (ValueError, OverflowError, MemoryError, RecursionError, TypeError, AttributeError) as error:
        # tarfile does not expect everything that a header can say.
        problems.add(shard, f"damaged after {len(images)} images: {error or type(error).__name__}")
    return Found(_with_labels(images, labels, problems), problems, bool(labels))


def _with_labels(images: list[Member], labels: dict[str, str], problems: Problems) -> list[Member]:
    """The images with their own labels, without those whose label is no class."""
    found = []
    for image in images:
        folder, base = os.path.split(image.name)
        label = labels.get(os.path.join(folder, base.partition(".")[0]))
        if label and label.startswith("-") and label[1:].isdecimal():
            problems.add(f"{image.shard}/{image.name}", f"a label of {label}, which is no class")
        else:
            found.append(replace(image, label=label) if label else image)
    return found


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
    shard: str, info: tarfile.TarInfo, file: _Headers, images: list[Member], labels: dict[str, str],
    problems: Problems,
) -> None:  # fmt: skip
    """Note a member that is an image or a label; the text of a label that cannot be used is empty."""
    folder, base = os.path.split(info.name)
    stem, _, ending = base.partition(".")
    is_label, is_image = ending.lower() == _LABEL, base.lower().endswith(ENDINGS)
    # Links and sparse files have other bytes than stand there.
    if not (is_label or is_image) or info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.sparse is not None:
        return
    if is_label:
        labels[os.path.join(folder, stem)] = ""
    if "\0" in info.name:
        problems.add(f"{shard}/{info.name!a}", "its name has a zero byte")
    elif info.offset_data + info.size > file.bytes:
        problems.add(f"{shard}/{info.name}", "cut off: the shard ends before it")
    elif is_image and (reason := too_large(info.size)) is not None:
        problems.add(f"{shard}/{info.name}", reason)
    elif is_image:
        images.append(Member(shard, info.name, info.offset_data, info.size, None, folder=_first_of(folder)))
    elif info.size > _MAX_LABEL_BYTES:
        problems.add(f"{shard}/{info.name}", f"a label of {info.size:,} bytes, more than {_MAX_LABEL_BYTES}")
    else:
        text = os.pread(file.fileno(), info.size, info.offset_data)
        labels[os.path.join(folder, stem)] = text.decode("utf-8", "replace").strip()


def _first_of(folder: str) -> str:
    """The first folder of a name; ``tar -C DIR -c .`` begins names with ``./``, and ``tar -P`` with ``/``."""
    return next((part for part in folder.split("/") if part not in ("", ".")), "")
