"""The lines of a manifest, and the parts that it is made of while shards are written."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pipetune.errors import PipetuneError
from pipetune.packing.formats.contract import Row, ShardRows
from pipetune.records.convert import from_dict
from pipetune.records.pack import Entry, RejectedEntry
from pipetune.store.files import replace_file

MANIFEST, REJECTED = "manifest.jsonl", "rejected.jsonl"
#: The folder of the parts while a pack is written. A class may not have this name.
PARTS = ".pipetune-parts"
_LONGEST_LINE = 1 << 16


_NAMES = {kind: tuple(field.name for field in fields(kind)) for kind in (Entry, RejectedEntry)}


def hash_of(data: bytes) -> str:
    """BLAKE2b of 128 bits, in hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def line_of(entry: Entry | RejectedEntry) -> bytes:
    """A line; names that are not UTF-8 are surrogate escapes in it."""
    values = {name: getattr(entry, name) for name in _NAMES[type(entry)]}  # asdict takes ten times as long
    return json.dumps(values, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHead:
    """The first line of a part: which shard it is of."""

    shard: int
    shards: int
    first: int
    """Its first place in the order."""
    images: int
    """Places, rejected images included."""
    bytes: int
    """Of the shard's file or files."""
    seconds: float
    """That writing it took, after the one before it was there."""


def part_of(folder: Path, shard: int) -> Path:
    """The file that says what a shard holds."""
    return folder / PARTS / f"{shard:06d}.jsonl"


def write_part(folder: Path, head: PartHead, entries: Iterable[Entry | RejectedEntry]) -> None:
    """What a shard holds, once it is published: from then on it counts as written.

    Args:
        folder: of the pack.
    """
    first = json.dumps(asdict(head), separators=(",", ":")).encode("ascii") + b"\n"
    replace_file(part_of(folder, head.shard), [first, *map(line_of, entries)])


def read_head(folder: Path, shard: int) -> PartHead | None:
    """The first line of a part; ``None``: the shard is not written.

    Raises:
        PipetuneError: somebody has changed the part.
    """
    path = part_of(folder, shard)
    try:
        with path.open("rb") as file:
            return from_dict(PartHead, json.loads(file.readline(_LONGEST_LINE)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(path, error) from error


def read_part(folder: Path, shard: int) -> list[Entry | RejectedEntry]:
    """The entries of a shard that is written.

    Raises:
        PipetuneError: somebody has changed the part.
    """
    path = part_of(folder, shard)
    try:
        return [_entry(json.loads(line)) for line in path.read_bytes().splitlines()[1:]]
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> PipetuneError:
    return PipetuneError(
        f"{str(path)!r} is damaged: {error}", hint=f"rm {shlex.quote(str(path))}; --resume packs that shard again"
    )


def read_manifest(folder: Path) -> Iterator[Entry]:
    """The images of a pack, one at a time.

    Raises:
        PipetuneError: there is no manifest, or it is damaged.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            for line in file:
                entry = _entry(json.loads(line))
                assert isinstance(entry, Entry)
                yield entry
    except OSError as error:
        raise PipetuneError(f"cannot read {path}: {error.strerror}", hint="is it the folder of a pack?") from error
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise PipetuneError(f"{path} is damaged: {error}") from error


def rows_of(name: str, head: PartHead, entries: Iterable[Entry | RejectedEntry]) -> ShardRows:
    """A shard as an index needs it."""
    rows = [
        Row(one.number, one.key, one.label, one.start, one.length) for one in entries if isinstance(one, Entry)
    ]  # fmt: skip
    return ShardRows(name, rows, head.bytes)


def _entry(values: Any) -> Entry | RejectedEntry:
    kind = RejectedEntry if "reason" in values else Entry
    return kind(**{field.name: values[field.name] for field in fields(kind)})
