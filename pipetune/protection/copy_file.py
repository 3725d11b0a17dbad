"""Copies of single files that are the file again: content with its holes, mode, owner, times and attributes.

Where the file system can share blocks (btrfs, XFS, bcachefs), a copy takes no time and no room (``FICLONE``, see
``ioctl_ficlone(2)``). Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat

#: ``_IOW(0x94, 9, int)`` of linux/fs.h, alike on x86-64 and aarch64.
_FICLONE = 0x40049409
_CHUNK_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
#: A copy takes at most so much of the room that its disk has.
MAX_FREE_SHARE = 0.9
_NO_RANGE = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM})


def copy_file(source: str, target: str) -> None:
    """Copy a regular file or a symbolic link.

    Args:
        target: does not exist. It exists as a whole, or not at all, when this returns or raises.

    Raises:
        OSError: one of them cannot be read or written; ``ENOSPC``: the disk has no room for it.
    """
    state = os.lstat(source)
    if stat.S_ISLNK(state.st_mode):
        os.symlink(os.readlink(source), target)
        set_attributes(target, state.st_mode, state.st_uid, state.st_gid, (state.st_atime_ns, state.st_mtime_ns))
        return
    source_fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        target_fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            copy_content(source_fd, target_fd)
            _copy_attributes(source_fd, target_fd)
        except BaseException:
            os.unlink(target)
            raise
        finally:
            os.close(target_fd)
        set_attributes(target, state.st_mode, state.st_uid, state.st_gid, (state.st_atime_ns, state.st_mtime_ns))
    finally:
        os.close(source_fd)


def separate_name(path: str) -> None:
    """Give a path a file of its own, with the same content, where the file has other names (hard links), too.

    Raises:
        OSError: see :func:`copy_file`.
    """
    unfinished = os.path.join(os.path.dirname(path), f".pipetune-{secrets.token_hex(8)}.tmp")
    try:
        copy_file(path, unfinished)
        os.rename(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def copy_content(source_fd: int, target_fd: int) -> None:
    """Make an open file's content that of another; holes stay holes.

    Raises:
        OSError: see :func:`copy_file`.
    """
    try:
        fcntl.ioctl(target_fd, _FICLONE, source_fd)
    except OSError:
        pass
    else:
        return
    state = os.fstat(source_fd)
    if 512 * state.st_blocks > MAX_FREE_SHARE * free_bytes(target_fd) + 512 * os.fstat(target_fd).st_blocks:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(target_fd, 0)
    os.ftruncate(target_fd, state.st_size)
    position = 0
    while position < state.st_size:
        try:
            position = os.lseek(source_fd, position, os.SEEK_DATA)
            end = os.lseek(source_fd, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            end = state.st_size
        _copy_range(source_fd, target_fd, position, end)
        position = end


def set_attributes(path: str, mode: int, uid: int, gid: int, times_ns: tuple[int, int]) -> None:
    """Give a path its owner, permissions and times (last access, last change), as far as this user may."""
    state = os.lstat(path)
    if (state.st_uid, state.st_gid) != (uid, gid):
        with contextlib.suppress(OSError):
            os.chown(path, uid, gid, follow_symlinks=False)
    if not stat.S_ISLNK(state.st_mode):
        with contextlib.suppress(OSError):
            os.chmod(path, stat.S_IMODE(mode))
    with contextlib.suppress(OSError):
        os.utime(path, ns=times_ns, follow_symlinks=False)


def have_same_content(path: str, other: str) -> bool:
    """Whether two regular files have the same bytes; ``False``, too, where one cannot be read."""
    try:
        with open(path, "rb", buffering=0) as one, open(other, "rb", buffering=0) as two:
            if os.fstat(one.fileno()).st_size != os.fstat(two.fileno()).st_size:
                return False
            while piece := one.read(_PIECE_BYTES):
                if piece != two.read(len(piece)):
                    return False
            return True
    except OSError:
        return False


def free_bytes(fd: int) -> int:
    """Room that this user has on the disk of an open file."""
    room = os.fstatvfs(fd)
    return room.f_bavail * room.f_frsize


def _copy_range(source_fd: int, target_fd: int, position: int, end: int) -> None:
    in_kernel = True
    while position < end:
        count = min(end - position, _CHUNK_BYTES)
        if in_kernel:
            try:
                copied = os.copy_file_range(source_fd, target_fd, count, position, position)
            except OSError as error:
                if error.errno not in _NO_RANGE:
                    raise
                copied = 0
            in_kernel = copied > 0  # file systems without a real size, /proc for one, report 0
        if not in_kernel:
            piece = os.pread(source_fd, min(count, _PIECE_BYTES), position)
            if not piece:
                return
            copied = os.pwrite(target_fd, piece, position)
        position += copied


def _copy_attributes(source_fd: int, target_fd: int) -> None:
    with contextlib.suppress(OSError):
        for name in os.listxattr(source_fd):
            with contextlib.suppress(OSError):
                os.setxattr(target_fd, name, os.getxattr(source_fd, name))
