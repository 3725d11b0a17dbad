"""What the cases of ``formats.py`` share: images whose colour is their class, and writers of shards."""

from __future__ import annotations

import io
import itertools
import json
import struct
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Levels of each colour channel: 27 classes.
LEVELS = (40, 120, 200)
COLOURS = tuple((red, green, blue) for red in LEVELS for green in LEVELS for blue in LEVELS)
_OFF = 25
RECORD_MAGIC = 0xCED7230A


@dataclass(frozen=True, slots=True)
class Case:
    """A data set, and what has to come of it."""

    name: str
    build: Callable[[Path], Path]
    """Makes it in an empty folder, and returns what to open."""
    used: int
    """Images that are used; 0: the data set is refused."""
    words: str
    """What has to be said, where the format's own library reads something else or nothing; ``""``: nothing."""
    format: str
    """``tar``, ``tfrecord``, ``recordio``, ``mds``, ``pixels``, ``folder``."""
    is_labelled: bool
    """The colours have to be the labels."""


CASES: list[Case] = []


def case(used: int, words: str = "", *, format: str = "tar", labelled: bool = True) -> Callable[[Any], Any]:
    """Register the function under a name made of its own."""

    def register(build: Callable[[Path], Path]) -> Callable[[Path], Path]:
        name = build.__name__.replace("_", " ")
        CASES.append(Case(name, build, used, words, format, labelled and used > 0))
        return build

    return register


def photo(label: int, number: int = 0, format: str = "JPEG") -> bytes:
    """An image of the class's colour, with a number in it."""
    return picture(COLOURS[label], number, format)


def mask(number: int = 0) -> bytes:
    """A white PNG, which must not be trained on."""
    return picture((255, 255, 255), number, "PNG")


def picture(colour: tuple[int, int, int], number: int, format: str) -> bytes:
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("number", str(number))
    options: dict[str, Any] = {"JPEG": {"quality": 95, "comment": str(number).encode()}, "PNG": {"pnginfo": text}}
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), colour).save(buffer, format, **options.get(format, {}))
    return buffer.getvalue()


def class_of_picture(data: bytes) -> int | None:
    """The class by the colour; ``None``: the picture is a mask."""
    from PIL import Image

    pixel = Image.open(io.BytesIO(data)).convert("RGB").getpixel((16, 16))
    assert isinstance(pixel, tuple)
    near = [min(range(3), key=lambda place: abs(LEVELS[place] - value)) for value in pixel]
    if any(abs(LEVELS[place] - value) > _OFF for place, value in zip(near, pixel, strict=True)):
        return None
    return near[0] * 9 + near[1] * 3 + near[2]


def tar(path: Path, members: Iterable[tuple[str, bytes | tarfile.TarInfo]], format: int = tarfile.PAX_FORMAT) -> Path:
    """A tar file of these members, in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format) as archive:
        for name, data in members:
            if isinstance(data, tarfile.TarInfo):
                archive.addfile(data)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return name, info


def labelled(count: int = 8, write: Callable[[int], bytes] = lambda label: b"%d" % label, **more: Any) -> Any:
    """``(name, data)`` of ``KEY.jpg`` and ``KEY.cls``, with other members of each sample.

    Args:
        count: of samples; their classes are 0, 1, 0, 1 ….
        write: the text of a label file.
        more: ending -> data of each sample, by its number; ``__`` in an ending is a dot.
    """
    for number in range(count):
        label = number % 2
        yield f"{number:04}.jpg", photo(label, number)
        for ending, make in more.items():
            yield f"{number:04}.{ending.replace('__', '.')}", make(number)
        yield f"{number:04}.cls", write(label)


def record(data: bytes, label: float, labels: tuple[float, ...] = ()) -> bytes:
    """A record of RecordIO, as MXNet's ``pack`` makes it."""
    payload = struct.pack("<IfQQ", len(labels), label, 0, 0) + struct.pack(f"<{len(labels)}f", *labels) + data
    return part(payload)


def part(payload: bytes, kind: int = 0) -> bytes:
    return struct.pack("<II", RECORD_MAGIC, kind << 29 | len(payload)) + payload + bytes(-len(payload) % 4)


def example(**features: Any) -> bytes:
    """A ``tf.train.Example`` as a record; ``__`` in a name is a slash. Lists of int, float or bytes."""
    from pipetune.datasets.tfrecord import checksum, mask_checksum

    entries = b""
    for name, values in features.items():
        if isinstance(values[0], int):
            value = _field(3, _field(1, b"".join(map(_varint, values))))
        elif isinstance(values[0], float):
            value = _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            value = _field(1, b"".join(_field(1, data) for data in values))
        entries += _field(1, _field(1, name.replace("__", "/").encode()) + _field(2, value))
    payload = _field(1, entries)
    length = struct.pack("<Q", len(payload))
    sums = [struct.pack("<I", mask_checksum(checksum(data))) for data in (length, payload)]
    return length + sums[0] + payload + sums[1]


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def mds(folder: Path, columns: dict[str, str], samples: list[dict[str, Any]], compression: str | None = None) -> Path:
    """MDS shards by streaming's own writer where it is installed, otherwise by its layout."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        from streaming import MDSWriter
    except ImportError:
        return _mds_by_hand(folder, columns, samples, compression)
    with MDSWriter(out=str(folder), columns=columns, compression=compression) as writer:
        for sample in samples:
            writer.write({name: _as_encoded(columns[name], value) for name, value in sample.items()})
    return folder


def _as_encoded(encoding: str, value: Any) -> Any:
    """The value as streaming's encoding takes it."""
    from PIL import Image

    return Image.open(io.BytesIO(value)) if encoding in ("jpeg", "png") else value


def _mds_by_hand(folder: Path, columns: dict[str, str], samples: list[dict[str, Any]], compression: str | None) -> Path:
    integers = {"int": "<q", "uint16": "<H", "int32": "<i"}
    names = sorted(columns)
    sizes = [struct.calcsize(integers[columns[name]]) if columns[name] in integers else None for name in names]
    about = {
        "column_names": names,
        "column_encodings": [columns[name] for name in names],
        "column_sizes": sizes,
        "compression": compression,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
    }
    described, rows = json.dumps(about, sort_keys=True).encode(), []
    for sample in samples:
        values = [
            struct.pack(integers[columns[name]], sample[name])
            if columns[name] in integers
            else sample[name]
            if isinstance(sample[name], bytes)
            else str(sample[name]).encode()
            for name in names
        ]
        open_sizes = [len(value) for value, size in zip(values, sizes, strict=True) if size is None]
        rows.append(struct.pack(f"<{len(open_sizes)}I", *open_sizes) + b"".join(values))
    start = 4 * (len(rows) + 2) + len(described)
    offsets = list(itertools.accumulate((len(row) for row in rows), initial=start))
    data = struct.pack(f"<{len(rows) + 2}I", len(rows), *offsets) + described + b"".join(rows)
    name = "shard.00000.mds"
    if compression is None:
        (folder / name).write_bytes(data)
    else:  # as large as any: a reader that knows the name does not look into it
        (folder / f"{name}.{compression}").write_bytes(data)
    shard = {
        **about,
        "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
        "samples": len(rows),
        "version": 2,
        "zip_data": None,
    }
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return folder
