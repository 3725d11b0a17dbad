"""Which files are shards, by their names: formats, the parts that a data set is divided into, and compressed files."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from pipetune.datasets.folder_walk import ENDINGS, shown
from pipetune.datasets.parts import find_part
from pipetune.datasets.raw_pixels import PIXELS
from pipetune.datasets.shard_members import open_shard
from pipetune.datasets.tfrecord import begins_tfrecord
from pipetune.errors import UsageError

TAR, RECORDIO, MDS, TFRECORD = ".tar", ".rec", ".mds", ".tfrecord"
#: Endings of shards' names, one for each format.
SHARD_ENDINGS = (TAR, RECORDIO, MDS, TFRECORD, PIXELS)
#: As TensorFlow Datasets and TensorFlow's scripts name TFRecord files: ``x.tfrecord-00000-of-00010``, ``x.tfrecords``.
_TFRECORD_NAME = re.compile(r"\.tfrecords?(-\d+-of-\d+)?$")
#: ``train-00000-of-01024``, which says nothing about the format.
_NUMBERED_NAME = re.compile(r"-\d+-of-\d+$")
#: The number of a shard, and of how many, wherever they stand in its name: ``x-00000-of-00010.tar``.
_NUMBER_OF = re.compile(r"-(\d+)-of-(\d+)(?=\.|$)")
#: So many missing shards are counted: somebody may have made the names up.
_MAX_MISSING = 100_000
#: Ending of a compressed file -> the command that unpacks one, and the bytes that such a file begins with.
COMPRESSED = {
    ".gz": ("gunzip", b"\x1f\x8b"),
    ".zst": ("zstd -d --rm", b"\x28\xb5\x2f\xfd"),
    ".xz": ("unxz", b"\xfd7zXZ\0"),
    ".bz2": ("bunzip2", b"BZh"),
    ".zstd": ("zstd -d --rm", b"\x28\xb5\x2f\xfd"),
    ".br": ("brotli -d -j", None),
    ".snappy": (None, b"\xff\x06\0\0sNaPpY"),
    ".lz4": ("lz4 -d --rm", b"\x04\x22\x4d\x18"),
}
_COMPRESSED_TAR = {".tgz": ".gz", ".tzst": ".zst", ".txz": ".xz", ".tbz2": ".bz2", ".tbz": ".bz2"}
#: Files of which many lie in one folder are named by a pattern.
_MAX_NAMED = 1


def find_shards(path: str) -> list[str]:
    """The shards that a path names: one, or a folder with shards of one format and neither images nor folders in it.

    Raises:
        UsageError: some are compressed and not there unpacked as well, they are of several formats, or they are of
            several parts of a data set, such as training and validation.
    """
    if not os.path.exists(path):
        return []  # scan_folder reports it
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else [os.path.basename(path)]
    except OSError:
        return []  # scan_folder reports why
    if any(name.lower().endswith(ENDINGS) for name in names):
        return []
    if any(os.path.isdir(os.path.join(folder, name)) for name in names if not name.startswith(".")):
        return []
    shards = list_shards(folder, names)
    formats = {find_ending(shard) for shard in shards}
    if len(formats) > 1:
        raise UsageError(
            f"{path!r} has shards of several formats: {', '.join(sorted(filter(None, formats)))}",
            hint="name one of them, or a folder with one format",
        )
    _refuse_compressed(folder, names, bool(shards))
    _refuse_parts(path, shards)
    return shards


def list_shards(folder: str, names: Iterable[str]) -> list[str]:
    """Paths of the shards among the files of a folder."""
    paths = (os.path.join(folder, name) for name in names if not name.startswith("."))
    return [path for path in paths if find_ending(path) is not None]


def find_ending(path: str) -> str | None:
    """The ending that a shard's format has, as ``.tfrecord`` of ``x.tfrecords``; ``None``: the file is no shard.

    A file with a name such as ``train-00000-of-01024`` is read: whether it begins as a TFRecord file does.
    """
    name = os.path.basename(path).lower()
    for ending in SHARD_ENDINGS:
        if name.endswith(ending):
            return ending
    if _TFRECORD_NAME.search(name) or (_NUMBERED_NAME.search(name) and begins_tfrecord(path)):
        return TFRECORD
    return None


def find_missing_numbers(shards: Sequence[str]) -> list[str]:
    """Paths of shards that others say belong to them, as ``x-00001-of-00002`` is missed beside ``x-00000-of-00002``."""
    groups: dict[tuple[str, str], list[re.Match[str]]] = {}
    for shard in shards:
        match = _NUMBER_OF.search(os.path.basename(shard))
        if match is not None:
            name = match.string[: match.start()] + "\0" + match.string[match.end() :]
            groups.setdefault((name, match[2]), []).append(match)
    missing = (
        os.path.join(os.path.dirname(shards[0]), name.replace("\0", f"-{number:0{len(matches[0][1])}}-of-{count}"))
        for (name, count), matches in groups.items()
        for number in sorted(set(range(min(int(count), _MAX_MISSING))) - {int(match[1]) for match in matches})
    )
    return list(itertools.islice(missing, _MAX_MISSING))


def find_compression(path: str) -> str | None:
    """The ending that a compressed file should have, by its first bytes, such as ``.gz``; ``None``: none is known."""
    try:
        fd, _ = open_shard(path)
    except OSError:
        return None
    try:
        head = os.pread(fd, 16, 0)
    finally:
        os.close(fd)
    return next((ending for ending, (_, magic) in COMPRESSED.items() if magic and head.startswith(magic)), None)


def refuse_compressed_content(shard: str, compression: str) -> UsageError:
    """The error for a shard that is compressed although its name does not say so."""
    renamed = f"{shard}{compression}"
    command = _unpack_command([renamed], compression)
    move = f"mv {shlex.quote(shard)} {shlex.quote(renamed)}"
    return UsageError(
        f"{shown(shard)} is compressed ({compression.lstrip('.')}), so its images cannot be read one by one",
        hint=f"unpack it: {move} && {command}" if command else "write it anew without compression",
    )


def _refuse_compressed(folder: str, names: Sequence[str], has_shards: bool) -> None:
    # Also beside plain ones: images are never left out in silence.
    present = set(names)
    packed = [name for name in names if (plain := _unpacked_name(name)) is not None and plain not in present]
    if not packed:
        return
    ending = os.path.splitext(packed[0])[1].lower()
    compression = _COMPRESSED_TAR.get(ending, ending)
    command = _unpack_command([os.path.join(folder, name) for name in packed if name.lower().endswith(ending)], ending)
    raise UsageError(
        f"{os.path.join(folder, packed[0])!r} is compressed, so its images cannot be read one by one",
        hint=(f"unpack it: {command}" if command and len(packed) == 1 else f"unpack the shards: {command}")
        + (", or move it to another folder" if has_shards else "")
        if command
        else f"write the shards anew without compression ({compression.lstrip('.')})",
    )


def _unpack_command(paths: Sequence[str], ending: str) -> str | None:
    """The command that unpacks these files; ``None``: no usual program does."""
    command = COMPRESSED[_COMPRESSED_TAR.get(ending, ending)][0]
    if command is None:
        return None
    folder = os.path.dirname(paths[0])
    pattern = os.path.join(shlex.quote(folder) if folder else "", f"*{ending}")
    if ending == ".zstd":  # zstd does not know this ending of its own files
        return f'for f in {pattern}; do {command} "$f" -o "${{f%.zstd}}"; done'
    return f"{command} {shlex.quote(paths[0]) if len(paths) <= _MAX_NAMED else pattern}"


def _unpacked_name(name: str) -> str | None:
    """The name of the shard that a compressed file becomes; ``None``: the file is none."""
    stem, ending = os.path.splitext(name)
    if ending.lower() in _COMPRESSED_TAR:
        return f"{stem}.tar"
    is_shard = stem.lower().endswith(SHARD_ENDINGS) or _TFRECORD_NAME.search(stem.lower()) is not None
    return stem if ending.lower() in COMPRESSED and is_shard else None


def _refuse_parts(path: str, shards: Sequence[str]) -> None:
    counts = Counter(filter(None, (find_part(os.path.basename(shard)) for shard in shards)))
    if len(counts) > 1:
        parts = ", ".join(f"{part} ({count:,})" for part, count in sorted(counts.items()))
        raise UsageError(
            f"{path!r} has shards of several parts of a data set: {parts}",
            hint="name one shard, or move each part to a folder of its own",
        )
