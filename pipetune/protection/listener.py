"""Answers the calls that the filter asks about: a file is kept before it changes, then the call goes on as it is.

One call after the other, in one thread of pipetune: the first version of a file is what the first call finds. A reading
``open`` never gets here. Until a call is received, a signal may interrupt it: the kernel makes it again, unless the
script has asked for ``EINTR`` (a handler without ``SA_RESTART``).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType

from pipetune.protection import before_change
from pipetune.protection.keeper import Keeper
from pipetune.protection.process_paths import (
    UnreachableError,
    folder_of_call,
    path_of_descriptor,
    read_memory,
    read_path,
    require_same_view,
    resolve_path,
)
from pipetune.protection.seccomp_filter import call_names

#: ``SECCOMP_IOCTL_NOTIF_RECV`` and ``…_SEND`` of linux/seccomp.h.
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
#: ``struct seccomp_notif``: id, thread, flags; then ``seccomp_data``: number, architecture, instruction, 6 arguments.
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_AT_SYMLINK_NOFOLLOW, _AT_REMOVEDIR, _AT_SYMLINK_FOLLOW, _AT_EMPTY_PATH = 0x100, 0x200, 0x400, 0x1000
_AT_FDCWD = -100
#: Beginnings of paths as a call has them whose files are no files of the user's: shared memory, at each batch.
_SHORT_CUTS = (b"/dev/shm/", b"/dev/null\0")
_PEEK_BYTES = 64


class Call:
    """A call that waits for an answer."""

    def __init__(self, thread: int, arguments: tuple[int, ...]) -> None:
        self.thread = thread
        self.arguments = arguments

    def signed(self, index: int) -> int:
        """An argument that is an ``int``."""
        return ctypes.c_int(self.arguments[index] & 0xFFFFFFFF).value

    def path(self, index: int, folder: int | None = None, *, follow: bool = False) -> str | None:
        """The resolved path of an argument; ``None``: see :func:`resolve_path`.

        Args:
            index: of the path.
            folder: index of the descriptor of the folder that it is relative to; ``None``: the working folder.
        """
        path = read_path(self.thread, self.arguments[index])
        folder_fd = _AT_FDCWD if folder is None else self.signed(folder)
        if not path:
            return None if folder_fd == _AT_FDCWD else path_of_descriptor(self.thread, folder_fd)
        base = "/" if path.startswith("/") else folder_of_call(self.thread, folder_fd)
        return resolve_path(self.thread, base, path, follow=follow)


def receive(listener: int) -> tuple[int, int, Call] | None:
    """The next call: its number for the answer, the number of the system call, and what it says.

    ``None``: it was interrupted meanwhile.
    """
    buffer = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    identity, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
    return identity, number, Call(thread, tuple(arguments))


def answer(listener: int, identity: int, error: int) -> None:
    """Let a call go on, or fail with an error (``errno``)."""
    flags = 0 if error else _CONTINUE
    try:
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(identity, 0, -error, flags))
    except OSError as refusal:
        if refusal.errno != errno.ENOENT:  # the call does not wait any more: its thread was killed
            raise


class Judge:
    """Decides about calls.

    Args:
        keeper: keeps the files.
        refuse: is told the path and why, for each call that is refused.
    """

    def __init__(self, keeper: Keeper, refuse: Callable[[str, OSError], None]) -> None:
        self._keeper, self._refuse = keeper, refuse
        self._handlers = {number: _HANDLERS[name] for number, name in call_names().items()}
        self._first_path = {number: _FIRST_PATH[name] for number, name in call_names().items() if name in _FIRST_PATH}

    def decide(self, number: int, call: Call) -> int:
        """Keep what a call is about to change; returns 0, or the error with which it has to fail."""
        try:
            index = self._first_path.get(number)
            if index is not None and read_memory(call.thread, call.arguments[index], _PEEK_BYTES).startswith(
                _SHORT_CUTS
            ):
                return 0
            require_same_view(call.thread)
            self._handlers[number](self._keeper, call)
        except UnreachableError as error:
            self._refuse("a file", error)
            return errno.EACCES
        except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
            return 0  # the thread has ended, or the call will fail by itself
        except OSError as error:
            if error.errno == errno.EFAULT:
                return 0
            self._refuse(self._name_path(index, call), error)
            return errno.ENOSPC if error.errno in (errno.ENOSPC, errno.EDQUOT) else errno.EACCES
        return 0

    def _name_path(self, index: int | None, call: Call) -> str:
        try:
            return "a file" if index is None else read_path(call.thread, call.arguments[index])
        except OSError:
            return "a file"


def _on_open(keeper: Keeper, call: Call, path: int, folder: int | None, flags: int) -> None:
    follow = not (flags & os.O_NOFOLLOW or (flags & os.O_CREAT and flags & os.O_EXCL))
    place = call.path(path, folder, follow=follow)
    if place is not None:
        before_change.before_open(keeper, place, flags)


def _on_openat2(keeper: Keeper, call: Call) -> None:
    flags = int.from_bytes(read_memory(call.thread, call.arguments[2], 8), "little")
    if flags & before_change.WRITING:
        _on_open(keeper, call, 1, 0, flags)


def _on_rename(
    keeper: Keeper, call: Call, old: tuple[int, int | None], new: tuple[int, int | None], flags: int
) -> None:
    source, target = call.path(*old), call.path(*new)
    if source is not None and target is not None:
        before_change.before_rename(keeper, source, target, flags)


def _on_unlinkat(keeper: Keeper, call: Call) -> None:
    _on_path(before_change.before_rmdir if call.signed(2) & _AT_REMOVEDIR else before_change.before_remove, 1, 0)(
        keeper, call
    )


def _on_link(keeper: Keeper, call: Call, old: tuple[int, int | None], new: tuple[int, int | None], flags: int) -> None:
    source = call.path(*old, follow=bool(flags & _AT_SYMLINK_FOLLOW))
    target = call.path(*new)
    if target is None:
        return
    if source is None or not os.path.lexists(source):  # a file without a name, which gets its first one
        before_change.before_making(keeper, target)
    else:
        before_change.before_link(keeper, source, target)


def _on_path(
    act: Callable[[Keeper, str], None], path: int, folder: int | None = None, *, follow: bool = False,
    flags: int | None = None,
) -> Callable[[Keeper, Call], None]:  # fmt: skip
    def handle(keeper: Keeper, call: Call) -> None:
        followed = follow and not (flags is not None and call.signed(flags) & _AT_SYMLINK_NOFOLLOW)
        place = call.path(path, folder, follow=followed)
        if place is not None:
            act(keeper, place)

    return handle


def _on_descriptor(keeper: Keeper, call: Call) -> None:
    place = path_of_descriptor(call.thread, call.signed(0))
    if place is not None:
        before_change.before_attributes(keeper, place)


_making, _attributes = before_change.before_making, before_change.before_attributes
_HANDLERS: Mapping[str, Callable[[Keeper, Call], None]] = MappingProxyType(
    {
        "open": lambda keeper, call: _on_open(keeper, call, 0, None, call.arguments[1]),
        "creat": lambda keeper, call: _on_open(keeper, call, 0, None, os.O_CREAT | os.O_WRONLY | os.O_TRUNC),
        "openat": lambda keeper, call: _on_open(keeper, call, 1, 0, call.arguments[2]),
        "openat2": _on_openat2,
        "truncate": _on_path(before_change.before_truncate, 0, follow=True),
        "rename": lambda keeper, call: _on_rename(keeper, call, (0, None), (1, None), 0),
        "renameat": lambda keeper, call: _on_rename(keeper, call, (1, 0), (3, 2), 0),
        "renameat2": lambda keeper, call: _on_rename(keeper, call, (1, 0), (3, 2), call.signed(4)),
        "unlink": _on_path(before_change.before_remove, 0),
        "unlinkat": _on_unlinkat,
        "rmdir": _on_path(before_change.before_rmdir, 0),
        "link": lambda keeper, call: _on_link(keeper, call, (0, None), (1, None), 0),
        "linkat": lambda keeper, call: _on_link(keeper, call, (1, 0), (3, 2), call.signed(4)),
        "symlink": _on_path(_making, 1),
        "symlinkat": _on_path(_making, 2, 1),
        "mkdir": _on_path(_making, 0),
        "mkdirat": _on_path(_making, 1, 0),
        "mknod": _on_path(_making, 0),
        "mknodat": _on_path(_making, 1, 0),
        "chmod": _on_path(_attributes, 0, follow=True),
        "fchmodat": _on_path(_attributes, 1, 0, follow=True),
        "fchmodat2": _on_path(_attributes, 1, 0, follow=True, flags=3),
        "chown": _on_path(_attributes, 0, follow=True),
        "lchown": _on_path(_attributes, 0),
        "fchownat": _on_path(_attributes, 1, 0, follow=True, flags=4),
        "utime": _on_path(_attributes, 0, follow=True),
        "utimes": _on_path(_attributes, 0, follow=True),
        "futimesat": _on_path(_attributes, 1, 0, follow=True),
        "utimensat": _on_path(_attributes, 1, 0, follow=True, flags=3),
        "fchmod": _on_descriptor,
        "fchown": _on_descriptor,
    }
)
#: Index of the path of calls that a script may make at each batch.
_FIRST_PATH = MappingProxyType({"open": 0, "openat": 1, "unlink": 0, "unlinkat": 1})
