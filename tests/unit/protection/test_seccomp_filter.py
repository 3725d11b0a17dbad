"""The filter's program, run as the kernel runs it, for both machines; and the paths that a process means."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from pipetune.protection import seccomp_filter
from pipetune.protection.listener import _HANDLERS
from pipetune.protection.process_paths import read_memory, resolve_path

_ALLOW, _ASK, _ERROR = 0x7FFF0000, 0x7FC00000, 0x00050000
#: AUDIT_ARCH of linux/audit.h, and numbers of asm/unistd_64.h and asm-generic/unistd.h.
_NATIVE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OPENAT = {"x86_64": 257, "aarch64": 56}
_READ = {"x86_64": 0, "aarch64": 63}
_UNLINKAT = {"x86_64": 263, "aarch64": 35}
_AT_FDCWD = (1 << 64) - 100


def run_filter(machine: str, number: int, arguments: tuple[int, ...] = (), architecture: int | None = None) -> int:
    """What the program returns for a call."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("=iIQ6Q", number, _NATIVE[machine] if architecture is None else architecture, 0, *padded)
    program = seccomp_filter.build_filter(machine)
    position = value = 0
    while True:
        code, yes, no, operand = program[position]
        position += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == 0x15:
            position += yes if value == operand else no
        elif code == 0x45:
            position += yes if value & operand else no
        else:
            assert code == 0x06
            return operand


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("flags", "asks"),
    [
        (os.O_RDONLY, False),
        (os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY, False),
        (os.O_WRONLY, True),
        (os.O_RDWR, True),
        (os.O_RDONLY | os.O_CREAT, True),
        (os.O_RDONLY | os.O_TRUNC, True),
        (os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, True),
    ],
)
def test_reading_is_not_asked_about(machine: str, flags: int, asks: bool) -> None:
    assert run_filter(machine, _OPENAT[machine], (_AT_FDCWD, 1, flags)) == (_ASK if asks else _ALLOW)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_that_change_names_are_asked_about_and_others_are_not(machine: str) -> None:
    assert run_filter(machine, _UNLINKAT[machine], (_AT_FDCWD, 1, 0)) == _ASK
    assert run_filter(machine, _READ[machine], (3, 1, 2)) == _ALLOW
    assert run_filter(machine, 425) == _ERROR | errno.ENOSYS, "io_uring_setup"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_programs_of_another_architecture_are_refused(machine: str) -> None:
    assert run_filter(machine, 5, architecture=0x40000003) == _ERROR | errno.ENOSYS


def test_calls_of_x32_are_refused() -> None:
    assert run_filter("x86_64", 0x40000000 | 257, (_AT_FDCWD, 1, os.O_WRONLY)) == _ERROR | errno.ENOSYS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_jumps_stay_within_the_program_and_every_call_has_a_handler(machine: str) -> None:
    program = seccomp_filter.build_filter(machine)
    for position, (_, yes, no, _) in enumerate(program):
        assert position + 1 + max(yes, no) <= len(program)
    assert set(seccomp_filter._NUMBERS[machine]) <= set(_HANDLERS)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("x")
    (tmp_path / "to_folder").symlink_to("folder")
    (tmp_path / "to_file").symlink_to(tmp_path / "to_folder/file")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to_nothing").symlink_to("folder/nothing")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "follow", "expected"),
    [
        ("folder/file", True, "folder/file"),
        ("to_folder/file", False, "folder/file"),
        ("./folder/../to_folder//file", False, "folder/file"),
        ("to_file", False, "to_file"),
        ("to_file", True, "folder/file"),
        ("to_nothing", True, "folder/nothing"),
        ("to_folder/new", True, "folder/new"),
        ("missing/new", True, None),
        ("loop", True, None),
    ],
)
def test_paths_are_resolved_as_the_kernel_does(place: Path, path: str, follow: bool, expected: str | None) -> None:
    resolved = resolve_path(os.getpid(), str(place), path, follow=follow)
    assert resolved == (None if expected is None else str(place / expected))


def test_an_open_file_of_the_process_is_its_path(place: Path) -> None:
    with open(place / "folder/file") as file:
        assert resolve_path(os.getpid(), "/", f"/proc/self/fd/{file.fileno()}", follow=True) == str(
            place / "folder/file"
        )
    read_end, write_end = os.pipe()
    assert resolve_path(os.getpid(), "/", f"/dev/fd/{read_end}", follow=True) is None
    os.close(read_end)
    os.close(write_end)


def test_memory_is_read_up_to_where_it_ends() -> None:
    import ctypes
    import mmap

    area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    area[:5] = b"/path"
    assert read_memory(os.getpid(), address, 6) == b"/path\0"
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + mmap.PAGESIZE), mmap.PAGESIZE, 0)
    assert len(read_memory(os.getpid(), address + mmap.PAGESIZE - 100, 256)) == 100
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + mmap.PAGESIZE), mmap.PAGESIZE, 3)
