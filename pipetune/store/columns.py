"""Reading timelines as columns: a million readings in seconds, and in little more memory than their numbers take.

Lines are decoded in blocks into structs that the garbage collector skips, and each block becomes part of one array per
field. A line that is torn, not JSON or of another kind is left out and reported, like in :mod:`pipetune.store.read`.
Fields that are missing, which an older version may not have written, are absent values; unknown ones, of a newer
version, are ignored.

Why not pandas' own reader: it takes three times as long, five times the memory, and one bad line ends it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from pipetune.records.observation import GpuReading, Reading, TreeReading
from pipetune.records.sweep import SCHEMA, StepTime
from pipetune.store.files import TIMELINES_FOLDER, os_errors_as, plain_name
from pipetune.store.numbers import most_of
from pipetune.store.regular import open_regular

if TYPE_CHECKING:
    import msgspec
    import numpy as np

    Columns = dict[str, np.ndarray[tuple[int], np.dtype[Any]]]

#: Bytes that are decoded at once; problems that are reported one by one, the rest as a number.
_BLOCK_BYTES = 4 << 20
_MAX_PROBLEMS = 20
#: Longest line, which has some 600 bytes; what is read of a timeline, and its rows: 4 million take 1.2 GB of memory.
_MOST_LINE_BYTES = 64 << 10
_MOST_BYTES = 4 << 30
_MOST_ROWS = 4_000_000
#: Nested records, whose fields become columns with this prefix.
_NESTED: dict[str, type[Any]] = {"tree": TreeReading, "gpu": GpuReading}
_READING, _STEP = "reading", "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineColumns:
    """One timeline. Absent values are NaN; times ``*_ns`` are whole numbers."""

    readings: Columns
    """Column → one value per reading, in the order of the file; nested fields as ``gpu_util_pct``, ``tree_cpu_s``."""
    steps: Columns
    problems: tuple[str, ...]


def load_columns(path: Path, key: str) -> TimelineColumns:
    """Read the timeline ``key`` of the run folder ``path``; empty, with a problem, when there is none.

    Raises:
        ValueError: ``key`` is not safe as a file name.
        PipetuneError: the file cannot be read.
    """
    source = path / TIMELINES_FOLDER / f"{plain_name(key)}.jsonl"
    problems = _Problems(source.name)
    gathered = {_READING: _Gathered(Reading), _STEP: _Gathered(StepTime)}
    try:
        for number, block in _blocks(source, problems):
            more = source.stat().st_size / len(block) if block else 0.0
            for kind, rows in _rows(number, block, problems).items():
                if rows:
                    gathered[kind].add(rows, expected=min(_MOST_ROWS, round(1.02 * len(rows) * more)))
            if sum(one.count for one in gathered.values()) >= _MOST_ROWS:
                problems.add(f"has more than {_MOST_ROWS:,} rows, and the rest was left out")
                break
    except FileNotFoundError:
        problems.add("is missing")
    return TimelineColumns(
        readings=gathered[_READING].columns(), steps=gathered[_STEP].columns(), problems=problems.sentences()
    )


def columns_of(readings: Sequence[Reading] = (), steps: Sequence[StepTime] = ()) -> TimelineColumns:
    """A timeline that is in memory, in the form of a stored one."""
    found = []
    for record, rows in ((Reading, readings), (StepTime, steps)):
        gathered = _Gathered(record)
        gathered.add(list(rows))
        found.append(gathered.columns())
    return TimelineColumns(readings=found[0], steps=found[1], problems=())


def column_names(record: type[Any]) -> list[str]:
    """The columns that a record's fields become."""
    names = []
    for field in dataclasses.fields(record):
        nested = _NESTED.get(field.name)
        names += [field.name] if nested is None else [f"{field.name}_{name}" for name in column_names(nested)]
    return names


class _Problems:
    def __init__(self, name: str) -> None:
        self._name, self._sentences, self._count = name, [], 0  # type: ignore[var-annotated]

    def add(self, text: str) -> None:
        line = f"{self._name} {text}"
        if line in self._sentences:
            return
        self._count += 1
        if self._count <= _MAX_PROBLEMS:
            self._sentences.append(line)

    def sentences(self) -> tuple[str, ...]:
        more = self._count - _MAX_PROBLEMS
        return (*self._sentences, *([f"{self._name}: {more} more lines were left out"] if more > 0 else []))


class _Gathered:
    """Blocks of one kind of record on their way to columns.

    Each column is one array that is filled block by block. Many small arrays, joined at the end, would be held twice:
    what the C library got for them, it keeps.
    """

    def __init__(self, record: type[Any]) -> None:
        self._record = record
        self._columns: Columns = {}
        self._count = self._capacity = 0

    @property
    def count(self) -> int:
        """Rows so far."""
        return self._count

    def add(self, rows: list[Any], expected: int = 0) -> None:
        """Append.

        Args:
            rows: records, or structs with the same fields.
            expected: rows that there will be in all, as far as known; memory is used only once it is written to.
        """
        import numpy as np

        first, self._count = self._count, self._count + len(rows)
        if self._count > self._capacity or not self._columns:
            self._grow(max(self._count, expected, 2 * self._capacity))
        for field in dataclasses.fields(self._record):
            values = [getattr(row, field.name) for row in rows]
            nested = _NESTED.get(field.name)
            if nested is None:
                kind = np.int64 if field.name.endswith("_ns") else np.float64
                self._columns[field.name][first : self._count] = np.array(values, dtype=kind)
                continue
            nothing = SimpleNamespace(**{part.name: None for part in dataclasses.fields(nested)})
            inner = [nothing if value is None else value for value in values]
            for part in dataclasses.fields(nested):
                column = self._columns[f"{field.name}_{part.name}"]
                column[first : self._count] = np.array([getattr(value, part.name) for value in inner], dtype=np.float64)

    def columns(self) -> Columns:
        """What was added."""
        if not self._columns:
            self._grow(0)
        return {name: values[: self._count] for name, values in self._columns.items()}

    def _grow(self, capacity: int) -> None:
        import numpy as np

        for name in column_names(self._record):
            larger = np.empty(capacity, dtype=np.int64 if name.endswith("_ns") else np.float64)
            if name in self._columns:
                known = self._columns[name][: self._capacity]
                larger[: len(known)] = known
            self._columns[name] = larger
        self._capacity = capacity


def _blocks(source: Path, problems: _Problems) -> Iterator[tuple[int, bytes]]:
    """Number of the first line, and whole lines; a last one without an end is reported."""
    number, left = 1, _MOST_BYTES
    with os_errors_as("read", source, passed=FileNotFoundError), open_regular(source) as file:
        while block := file.read(_BLOCK_BYTES):
            left -= len(block)
            block += file.readline(_MOST_LINE_BYTES)
            if not block.endswith(b"\n"):
                whole, _, rest = block.rpartition(b"\n")
                torn = number + whole.count(b"\n") + bool(whole)
                length, ended = _pass_over(file, len(rest), left)
                why = "it is too long" if ended else "it was not written to its end"
                problems.add(f"line {torn} was left out: {why} ({length} bytes)")
                left -= length
                number += ended
                block = whole + b"\n" if whole else b""
            yield number, block
            number += block.count(b"\n")
            if left <= 0:
                problems.add(f"has more than {_MOST_BYTES >> 30} GiB, and the rest was left out")
                return


def _pass_over(file: BinaryIO, length: int, most: int) -> tuple[int, bool]:
    """Read to the end of a line of which so many bytes were read; its length, and whether it has an end."""
    while length < most and (piece := file.readline(_BLOCK_BYTES)):
        length += len(piece)
        if piece.endswith(b"\n"):
            return length, True
    return length, False


def _rows(number: int, block: bytes, problems: _Problems) -> dict[str, list[Any]]:
    """Kind → structs. The whole block at once, and line by line where a line of it is bad."""
    import msgspec

    decoder = _decoder()
    try:
        rows = decoder.decode_lines(block)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        rows = []
        for at, line in enumerate(block.split(b"\n"), start=number):
            if not line.strip():  # which decode_lines passes over, too
                continue
            try:
                rows.append(decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                problems.add(f"line {at} was left out: {error}")
    found: dict[str, list[Any]] = {_READING: [], _STEP: []}
    for row in rows:
        if row.schema > SCHEMA:
            problems.add(f"was written in schema {row.schema}, this version reads {SCHEMA}: upgrade pipetune")
        found[row.__struct_config__.tag].append(row)
    return found


@cache
def _structs() -> dict[type[Any], type[Any]]:
    """Record → a struct with the same fields that decodes fast. Only what a row cannot do without is required."""
    import msgspec

    found: dict[type[Any], type[Any]] = {}
    for record, tag in ((TreeReading, None), (GpuReading, None), (Reading, _READING), (StepTime, _STEP)):
        fields: list[tuple[str, Any, Any]] = [] if tag is None else [("schema", int, SCHEMA)]
        for field in dataclasses.fields(record):
            nested = _NESTED.get(field.name)
            if nested is not None:
                fields.append((field.name, found[nested] | None, None))
                continue
            most = most_of(field.name)
            if field.name.endswith("_ns"):
                instant = Annotated[int, msgspec.Meta(ge=-int(most), le=int(most))]
                fields.append((field.name, instant, msgspec.NODEFAULT))
            else:
                amount = Annotated[float, msgspec.Meta(ge=-most, le=most)]
                fields.append((field.name, amount | None, None))
        found[record] = msgspec.defstruct(
            record.__name__, fields, kw_only=True, gc=False, tag_field=None if tag is None else "kind", tag=tag
        )
    return found


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    import msgspec

    return msgspec.json.Decoder(_structs()[Reading] | _structs()[StepTime])
