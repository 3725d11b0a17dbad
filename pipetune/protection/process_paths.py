"""The paths that another process means: read from its memory, and resolved as the kernel does for it.

All that is read may change while it is read: another thread of the process may write to it. That is its own affair.
"""

from __future__ import annotations

import ctypes
import os
import stat

from pipetune.protection.seccomp_filter import memory_call

_MAX_PATH_BYTES = 4096
_MAX_LINKS = 40
_PAGE_BYTES = 4096
_AT_FDCWD = -100


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)


class UnreachableError(OSError):
    """A process cannot be looked into, or means files that pipetune does not see under this path."""


def read_memory(thread: int, address: int, length: int) -> bytes:
    """Up to so many bytes of a process; fewer where its memory ends.

    Raises:
        OSError: it cannot be read.
    """
    buffer = ctypes.create_string_buffer(length)
    target = _Piece(ctypes.cast(buffer, ctypes.c_void_p), length)
    # A transfer stops at a piece that cannot be read as a whole: each page is a piece.
    pieces, position = [], address
    while position < address + length:
        end = min((position // _PAGE_BYTES + 1) * _PAGE_BYTES, address + length)
        pieces.append(_Piece(position, end - position))
        position = end
    sources = (_Piece * len(pieces))(*pieces)
    count = _libc.syscall(
        memory_call(), thread, ctypes.byref(target), ctypes.c_ulong(1), sources, ctypes.c_ulong(len(pieces)),
        ctypes.c_ulong(0),
    )  # fmt: skip
    if count < 0:  # some containers forbid this call
        with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
            return os.pread(memory.fileno(), length, address)
    return buffer.raw[:count]


def read_path(thread: int, address: int) -> str:
    """The path that stands at an address.

    Raises:
        OSError: it cannot be read.
    """
    if address == 0:
        return ""
    data = read_memory(thread, address, 256)
    if b"\0" not in data:
        data = read_memory(thread, address, _MAX_PATH_BYTES)
    return os.fsdecode(data.partition(b"\0")[0])


def folder_of_call(thread: int, folder_fd: int) -> str:
    """The folder that a relative path begins at.

    Args:
        folder_fd: as the call has it.

    Raises:
        OSError: the thread has ended, or it has no such descriptor.
    """
    if folder_fd == _AT_FDCWD:
        return os.readlink(f"/proc/{thread}/cwd")
    return os.readlink(f"/proc/{thread}/fd/{folder_fd}")


def path_of_descriptor(thread: int, fd: int) -> str | None:
    """The path of an open file; ``None``: it has none, or another file has it by now."""
    link = f"/proc/{thread}/fd/{fd}"
    try:
        path = os.readlink(link)
        return path if path.startswith("/") and os.path.samestat(os.stat(link), os.lstat(path)) else None
    except OSError:
        return None


def require_same_view(thread: int) -> None:
    """Refuse a thread with another root or other mounts than ours.

    Raises:
        UnreachableError: it has.
    """
    try:
        mounts = os.stat(f"/proc/{thread}/ns/mnt")
        root = os.stat(f"/proc/{thread}/root/")
    except PermissionError as error:
        raise UnreachableError(error.errno, "a process cannot be looked into") from None
    if mounts.st_ino != os.stat("/proc/self/ns/mnt").st_ino or not os.path.samestat(root, os.stat("/")):
        raise UnreachableError(0, "a process has a view of the files of its own")


def resolve_path(thread: int, base: str, path: str, *, follow: bool) -> str | None:
    """The absolute path without links that a call means.

    Args:
        base: the folder that a relative path begins at.
        follow: the last part is followed, too, if it is a link.

    Returns:
        ``None``: there is no file of that path, nor could one be made: a folder on the way is missing, a loop, or an
        open file that has no path.
    """
    waiting = [part for part in reversed(path.split("/")) if part]
    present = "/" if path.startswith("/") else base
    links = 0
    while waiting:
        part = waiting.pop()
        if part == ".":
            continue
        if part == "..":
            present = os.path.dirname(present)
            continue
        candidate = f"{present.rstrip('/')}/{part}"
        if candidate in ("/proc/self", "/proc/thread-self"):  # for us, they are we
            present = f"/proc/{thread}"
            continue
        try:
            is_link = stat.S_ISLNK(os.lstat(candidate).st_mode)
        except OSError:
            if waiting and any(part not in (".", "") for part in waiting):
                return None
            return candidate
        if is_link and (follow or waiting):
            links += 1
            try:
                target = os.readlink(candidate)
            except OSError:
                return None
            if links > _MAX_LINKS or (candidate.startswith("/proc/") and not target.startswith("/")):
                return None
            if target.startswith("/"):
                present = "/"
            waiting += [part for part in reversed(target.split("/")) if part]
            continue
        present = candidate
    return present
