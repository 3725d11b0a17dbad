"""The filter that has the kernel ask before a process changes a file: seccomp user notification (seccomp_unotify(2)).

Reading stays untouched: an ``open`` is asked about only where its flags say that the file may be made or written to.
Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Mapping
from types import MappingProxyType

_LD_WORD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_RET_ALLOW, _RET_NOTIFY, _RET_ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16
_SET_MODE_FILTER = 1
_SPEC_ALLOW, _NEW_LISTENER, _WAIT_KILLABLE = 4, 8, 32
_PR_SET_NO_NEW_PRIVS = 38
#: An ``open`` with one of these may make or change a file.
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

#: Machine -> AUDIT_ARCH of linux/audit.h, number of seccomp(2), number of process_vm_readv(2).
_MACHINES = MappingProxyType({"x86_64": (0xC000003E, 317, 310), "aarch64": (0xC00000B7, 277, 270)})
#: Machine -> name of a call -> its number; of calls that take a path or a descriptor and may change something.
_NUMBERS = MappingProxyType(
    {
        "x86_64": {
            "open": 2, "truncate": 76, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87,
            "symlink": 88, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "utime": 132,
            "mknod": 133, "utimes": 235, "openat": 257, "mkdirat": 258, "mknodat": 259, "fchownat": 260,
            "futimesat": 261, "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "fchmodat": 268,
            "utimensat": 280, "renameat2": 316, "openat2": 437, "fchmodat2": 452,
        },
        "aarch64": {
            "mknodat": 33, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38,
            "truncate": 45, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "openat": 56, "utimensat": 88,
            "renameat2": 276, "openat2": 437, "fchmodat2": 452,
        },
    }
)  # fmt: skip
#: Calls that would change files without being asked about; programs do without them: io_uring_setup(2), and
#: open_by_handle_at(2), which only root may use.
_REFUSED = MappingProxyType(
    {"x86_64": {425: errno.ENOSYS, 304: errno.EPERM}, "aarch64": {425: errno.ENOSYS, 265: errno.EPERM}}
)
_FLAGS_ARGUMENT = MappingProxyType({"open": 1, "openat": 2})


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def is_known_machine() -> bool:
    """Whether the numbers of this machine's calls are known."""
    return platform.machine() in _NUMBERS


def call_names() -> Mapping[int, str]:
    """Number -> name of the calls that are asked about on this machine."""
    return {number: name for name, number in _NUMBERS[platform.machine()].items()}


def memory_call() -> int:
    """Number of process_vm_readv(2)."""
    return _MACHINES[platform.machine()][2]


def build_filter(machine: str) -> list[tuple[int, int, int, int]]:
    """The program (code, jump if true, jump if false, value), as the kernel runs it at each call.

    Args:
        machine: ``x86_64`` or ``aarch64``.
    """
    architecture = _MACHINES[machine][0]
    program = [
        (_LD_WORD, 0, 0, _AT_ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _RET_ERRNO | errno.ENOSYS),  # a 32-bit program
        (_LD_WORD, 0, 0, _AT_NUMBER),
    ]
    if machine == "x86_64":  # the x32 calls have this bit
        program += [(_JUMP_SET, 0, 1, 0x40000000), (_RETURN, 0, 0, _RET_ERRNO | errno.ENOSYS)]
    for number, error in _REFUSED[machine].items():
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _RET_ERRNO | error)]
    for name, number in _NUMBERS[machine].items():
        if name in _FLAGS_ARGUMENT:
            program += [
                (_JUMP_EQUAL, 0, 4, number),
                (_LD_WORD, 0, 0, _AT_ARGUMENTS + 8 * _FLAGS_ARGUMENT[name]),  # the lower half, on little-endian
                (_JUMP_SET, 0, 1, _WRITING),
                (_RETURN, 0, 0, _RET_NOTIFY),
                (_RETURN, 0, 0, _RET_ALLOW),
            ]
        else:
            program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _RET_NOTIFY)]
    return [*program, (_RETURN, 0, 0, _RET_ALLOW)]


def install_filter() -> int:
    """Put this thread, and all that it starts, under the filter.

    Returns:
        The listener: who has it is asked. When nobody has it any more, the calls fail with ``ENOSYS``.

    Raises:
        OSError: the kernel has no such filter, something forbids it, or there is a listener already.
    """
    machine = platform.machine()
    lines = build_filter(machine)
    instructions = (_Instruction * len(lines))(*(_Instruction(*line) for line in lines))
    program = _Program(len(lines), instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    # Root keeps what set-user-ID programs need; everybody else has to give it up.
    for no_new_privileges in (False, True):
        if no_new_privileges and libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            break
        # A kernel before 5.19 does not know that only a deadly signal may interrupt a call that is asked about.
        for flags in (_NEW_LISTENER | _SPEC_ALLOW | _WAIT_KILLABLE, _NEW_LISTENER | _SPEC_ALLOW):
            listener = libc.syscall(_MACHINES[machine][1], _SET_MODE_FILTER, flags, ctypes.byref(program))
            if listener >= 0:
                return int(listener)
            if ctypes.get_errno() != errno.EINVAL:
                break
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
