"""Putting a built library into its place for good.

All of the work happens in a folder beside the place, which goes away whatever happens; the result is put in place by
renaming. A lock keeps two installations apart, and who holds it may clear away what a killed one left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pipetune.errors import PipetuneError

#: The result, in the work folder.
SITE = "site"
#: What flock answers on a file system without locks.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextlib.contextmanager
def installing(place: Path, tell: Callable[[str], None]) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A folder to work in, and what to call when its ``site`` is complete.

    Args:
        place: where ``site`` belongs.
        tell: is called with one line when somebody else is installing.

    Raises:
        PipetuneError: the disk failed; what was there before still is.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _lock(place, tell) as alone, _work_folder(place, alone) as work:
            yield work, partial(_put_in_place, work, place)
    except OSError as error:
        raise PipetuneError(
            f"cannot install into {place}: {error.strerror or error}",
            hint="free some room there, or set XDG_DATA_HOME to a folder that you may write to",
        ) from error


@contextlib.contextmanager
def _lock(place: Path, tell: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock beside ``place``; ``False`` on a file system without locks, where refusing would help nobody.

    The file stays: removing it would race with a process that has just opened it.
    """
    fd = os.open(place.with_name(f".{place.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another pipetune is installing it: waiting")
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            yield False
            return
        yield True
    finally:
        os.close(fd)


@contextlib.contextmanager
def _work_folder(place: Path, alone: bool) -> Iterator[Path]:
    """A new folder on the same file system, gone at the end; who is ``alone`` clears away those of killed ones."""
    prefix = f".{place.name}-"
    for left in place.parent.glob(f"{prefix}*") if alone else ():
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _put_in_place(work: Path, place: Path) -> None:
    """Two renames. What stops us between them brings the old one back."""
    old = work / "old"
    try:
        if os.path.lexists(place):
            os.rename(place, old)
        os.rename(work / SITE, place)
    except BaseException:
        if os.path.lexists(old) and not os.path.lexists(place):
            os.rename(old, place)
        raise
