"""Device code of other GPUs goes, everything else of a library stays where it is."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from benchmarks.gpu.pack.fatbin import CUBIN, MAGIC, PTX, SECTION, Pruned, prune_library

Code = tuple[int, int, bytes]


def make_container(*codes: Code) -> bytes:
    entries = b"".join(make_entry(*code) for code in codes)
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(entries)) + entries


def make_entry(kind: int, architecture: int, payload: bytes) -> bytes:
    begin = struct.pack("<HHIQ", kind, 1, 64, len(payload)).ljust(28, b"\1")
    return begin + struct.pack("<I", architecture).ljust(36, b"\2") + payload


def make_library(path: Path, section: bytes, name: bytes = SECTION) -> Path:
    """An ELF file with the headers that count: the table of sections with this one and their names."""
    names = b"\0" + name + b"\0.shstrtab\0"
    begin = 64
    names_at = begin + len(section)
    table_at = names_at + len(names)
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    header[0x28:0x30] = struct.pack("<Q", table_at)
    header[0x3A:0x40] = struct.pack("<HHH", 64, 3, 2)

    def describe(name_at: int, offset: int, size: int) -> bytes:
        return (struct.pack("<I", name_at).ljust(24, b"\0") + struct.pack("<QQ", offset, size)).ljust(64, b"\0")

    table = describe(0, 0, 0) + describe(1, begin, len(section)) + describe(2 + len(name), names_at, len(names))
    path.write_bytes(bytes(header) + section + names + table)
    return path


def prune(tmp_path: Path, *codes: Code, architecture: int = 90) -> list[bool]:
    """Which of the codes are still there."""
    path = make_library(tmp_path / "lib.so", make_container(*codes))
    before = path.read_bytes()
    prune_library(path, architecture)
    after = path.read_bytes()
    kept = [payload in after for _, _, payload in codes]
    for (_, _, payload), stays in zip(codes, kept, strict=True):
        if not stays:
            before = before.replace(payload, bytes(len(payload)))
    assert after == before
    return kept


def test_code_of_other_gpus_is_zeroed(tmp_path: Path) -> None:
    codes = [(CUBIN, 80, b"a" * 16), (CUBIN, 90, b"b" * 24), (CUBIN, 100, b"c" * 8), (PTX, 120, b"d" * 16)]
    assert prune(tmp_path, *codes) == [False, True, False, False]


def test_an_older_binary_of_the_same_generation_runs(tmp_path: Path) -> None:
    codes = [(CUBIN, 75, b"a" * 16), (CUBIN, 80, b"b" * 16), (CUBIN, 86, b"c" * 16), (PTX, 80, b"d" * 16)]
    assert prune(tmp_path, *codes, architecture=87) == [False, False, True, False]


def test_the_driver_compiles_the_newest_older_ptx_where_no_binary_runs(tmp_path: Path) -> None:
    codes = [(CUBIN, 80, b"a" * 16), (PTX, 70, b"b" * 16), (PTX, 80, b"c" * 16), (PTX, 100, b"d" * 16)]
    assert prune(tmp_path, *codes) == [False, False, True, False]


def test_a_container_that_the_gpu_cannot_use_stays_whole(tmp_path: Path) -> None:
    assert prune(tmp_path, (CUBIN, 100, b"a" * 16), (PTX, 120, b"b" * 16)) == [True, True]


def test_all_containers_are_pruned(tmp_path: Path) -> None:
    containers = [make_container((CUBIN, 80, bytes([i]) * 12), (CUBIN, 90, b"k" * 8)) for i in (1, 2, 3)]
    section = b"".join(each.ljust(len(each) + -len(each) % 8, b"\0") + bytes(8) for each in containers)
    path = make_library(tmp_path / "lib.so", section)
    assert prune_library(path, 90) == Pruned(kept_bytes=24, zeroed_bytes=36)


def test_a_library_without_device_code_stays(tmp_path: Path) -> None:
    path = make_library(tmp_path / "lib.so", b"data" * 8, name=b".rodata")
    before = path.read_bytes()
    assert prune_library(path, 90) == Pruned(0, 0)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (b"no container at all, is there", "no container"),
        (struct.pack("<IHHQ", MAGIC, 1, 16, 1000), "longer than its section"),
        (
            make_container((CUBIN, 90, b"a" * 16))[:-16].replace(b"\x50\0\0\0\0\0\0\0", b"\x40\0\0\0\0\0\0\0"),
            "longer than",
        ),
    ],
)
def test_another_format_is_an_error(tmp_path: Path, section: bytes, words: str) -> None:
    path = make_library(tmp_path / "lib.so", section)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=words):
        prune_library(path, 90)
    assert path.read_bytes() == before
