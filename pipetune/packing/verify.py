"""Reads a pack again and compares it with its manifest."""

from __future__ import annotations

import os
import random
import shlex
import struct
from collections.abc import Callable
from pathlib import Path

from pipetune.datasets.image_header import NotAnImage, parse_header
from pipetune.errors import PipetuneError
from pipetune.packing.jpeg_library import CannotPack, own_packer
from pipetune.packing.manifest import PARTS, hash_of, read_manifest
from pipetune.packing.pixels import TRANSCODED, TURNED_LOSSLESS, Rejected
from pipetune.packing.shard import Pack
from pipetune.packing.shards import read_source
from pipetune.records.pack import Entry

#: EXIF orientation -> the one that undoes what brings it upright.
_BACK = {2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}
#: Images that ``sample`` reads again, at most.
_SAMPLED = 200


def verify(folder: Path, pack: Pack, how: str, report: Callable[[str, int, int | None], None]) -> int:
    """Compare images with what the manifest says of them; those written without loss with their sources.

    Args:
        how: ``all``, ``sample`` or ``none``.

    Returns:
        Number of images that were compared.

    Raises:
        PipetuneError: one is another, or cannot be read.
    """
    if how == "none":
        return 0
    total = sum(1 for _ in read_manifest(folder))
    chosen = None if how == "all" else set(random.Random(0).sample(range(total), min(_SAMPLED, total)))
    count = 0
    for number, entry in enumerate(read_manifest(folder)):
        if chosen is None or number in chosen:
            compare(folder, pack, entry)
            count += 1
            report("comparing with the manifest", count, total if chosen is None else len(chosen))
    return count


def check_files(folder: Path) -> None:
    """Whether the files of a complete pack are there, and as long as the manifest says.

    Raises:
        PipetuneError: one is not.
    """
    last, ends = "", 0
    for entry in read_manifest(folder):
        if entry.file != last:  # the manifest has one file after the other
            _check_file(folder, last, ends)
            last, ends = entry.file, 0
        ends = max(ends, entry.start + entry.length)
    _check_file(folder, last, ends)


def _check_file(folder: Path, name: str, ends: int) -> None:
    if not name:
        return
    path = folder / name
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise PipetuneError(f"{str(path)!r} cannot be read: {error.strerror}", hint=_again(folder)) from error
    if size < ends:
        raise PipetuneError(f"{str(path)!r} has {size:,} bytes, its images {ends:,}", hint=_again(folder))


def _again(folder: Path) -> str:
    """What helps a complete pack: what ``--resume`` goes by is not there any more."""
    return f"rm -r {shlex.quote(str(folder))}, and pack again"


def compare(folder: Path, pack: Pack, entry: Entry) -> None:
    """Read one image again.

    Raises:
        PipetuneError: it is not what the manifest says.
    """
    place = f"image {entry.number} ({entry.key}) in {folder / entry.file}"
    again = _again(folder)
    if (folder / PARTS).is_dir():
        again = f"rm {shlex.quote(str(folder / entry.file))}; --resume packs that shard again"
    try:
        data = pack.format.read(folder, entry.file, entry.start, entry.length)
    except (OSError, ValueError, struct.error) as error:
        raise PipetuneError(f"{place} cannot be read: {error}", hint=again) from error
    if len(data) != entry.length or hash_of(data) != entry.hash:
        raise PipetuneError(f"{place} is not what was written", hint=again)
    if entry.done not in (TRANSCODED, TURNED_LOSSLESS):
        return
    try:
        source = read_source(pack.sources.where(pack.split.order[entry.number]))
        if hash_of(source) == entry.source_hash and not _same(source, data, turned=entry.done == TURNED_LOSSLESS):
            raise PipetuneError(f"{place} has other coefficients than its source", hint="please report this")
    except (OSError, Rejected, CannotPack, NotAnImage) as error:
        raise PipetuneError(f"{place} cannot be compared with its source: {error}") from error


def _same(source: bytes, packed: bytes, *, turned: bool) -> bool:
    """Whether both have the same coefficients; of a turned one, once it is turned back."""
    packer = own_packer()
    back = packer.turned(packed, _BACK[parse_header(source).orientation]) if turned else packed
    return back is not None and packer.same(source, back)
