"""Device code in shared libraries: that of other GPUs is overwritten with zeros, which compress to nothing.

A CUDA library has the code of each kernel for many architectures in its ELF section ``.nv_fatbin``. The section is a
row of containers, each with a header (magic, version, size of the header, size of what follows) and entries (kind,
version, size of the header, size of the payload; at byte 28 the architecture, 90 for sm_90). NVIDIA does not document
the format, and ``nvprune`` takes no shared library. The layout of the file stays as it is, because the host code has
addresses of the containers.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SECTION = b".nv_fatbin"
MAGIC = 0xBA55ED50
#: magic, version, bytes of this header, bytes of the entries
_CONTAINER = struct.Struct("<IHHQ")
#: kind, version, bytes of this header, bytes of the payload
_ENTRY = struct.Struct("<HHIQ")
_ARCHITECTURE = struct.Struct("<I")
_ARCHITECTURE_AT = 28
#: Smallest header of an entry with an architecture.
_MIN_ENTRY_BYTES = 64
PTX, CUBIN = 1, 2
#: Containers begin at multiples of this.
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class Pruned:
    """Result of :func:`prune_library`."""

    kept_bytes: int
    """Payloads that the GPU can use."""
    zeroed_bytes: int
    """Payloads of other architectures."""


@dataclass(frozen=True, slots=True)
class _Code:
    kind: int
    architecture: int
    payload: slice


def prune_library(path: Path, architecture: int) -> Pruned:
    """Overwrite the device code that a GPU of this architecture does not use.

    A container keeps its code for the architecture itself; else for the nearest older one of the same generation; else
    the newest PTX that the driver can compile for it. A container without any of them stays whole.

    Args:
        path: an ELF library, which is changed; one without device code stays as it is.
        architecture: 90 for sm_90.

    Raises:
        ValueError: the section has no container, so its format is not the one that is known.
    """
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        section = find_section(data, SECTION)
        if section is None:
            return Pruned(0, 0)
        containers = list(_read_containers(data, section))
        if not containers:
            raise ValueError(f"{path.name}: {SECTION.decode()} has no container of device code")
        kept = zeroed = 0
        for container in containers:
            used = _select_used(container, architecture)
            for code in container:
                size = code.payload.stop - code.payload.start
                if code in used:
                    kept += size
                else:
                    zeroed += size
                    data[code.payload] = bytes(size)
    return Pruned(kept, zeroed)


def find_section(data: bytes | mmap.mmap, name: bytes) -> slice | None:
    """The place of an ELF section in the file; ``None``: no such section, or no 64-bit little-endian ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)

    def read_header(index: int) -> tuple[int, int, int]:
        (name_at,) = struct.unpack_from("<I", data, table + index * size)
        offset, length = struct.unpack_from("<QQ", data, table + index * size + 24)
        return name_at, offset, length

    if not count:
        return None
    _, names, _ = read_header(names_index)
    for index in range(count):
        name_at, offset, length = read_header(index)
        begin = names + name_at
        if data[begin : begin + len(name) + 1] == name + b"\0":
            return slice(offset, offset + length)
    return None


def _read_containers(data: mmap.mmap, section: slice) -> Iterator[list[_Code]]:
    position = section.start
    while position + _CONTAINER.size <= section.stop:
        magic, _, header_bytes, content_bytes = _CONTAINER.unpack_from(data, position)
        if magic != MAGIC:
            position += _ALIGNMENT
            continue
        end = position + header_bytes + content_bytes
        if end > section.stop:
            raise ValueError(f"a container of device code at byte {position} is longer than its section")
        yield list(_read_codes(data, position + header_bytes, end))
        position = end + -end % _ALIGNMENT


def _read_codes(data: mmap.mmap, position: int, end: int) -> Iterator[_Code]:
    while position + _MIN_ENTRY_BYTES <= end:
        kind, _, header_bytes, payload_bytes = _ENTRY.unpack_from(data, position)
        (architecture,) = _ARCHITECTURE.unpack_from(data, position + _ARCHITECTURE_AT)
        begin = position + header_bytes
        if header_bytes < _MIN_ENTRY_BYTES or begin + payload_bytes > end:
            raise ValueError(f"device code at byte {position} is longer than its container")
        yield _Code(kind, architecture, slice(begin, begin + payload_bytes))
        position = begin + payload_bytes


def _select_used(container: list[_Code], architecture: int) -> list[_Code]:
    """What the driver would load: binaries run on the same generation only, PTX on every later one."""
    older = [code for code in container if code.architecture <= architecture]
    binaries = [c for c in older if c.kind == CUBIN and c.architecture // 10 == architecture // 10]
    usable = binaries or [code for code in older if code.kind == PTX]
    if not usable:
        return container
    nearest = max(code.architecture for code in usable)
    return [code for code in usable if code.architecture == nearest]
