"""Who could have written a file whose code is about to run in this process.

Why a file that its group may write to counts as anybody's: who is in a group cannot be found out for certain where a
network's directory has the groups. pipetune takes that right from what it installs, so that nothing has to be asked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def why_foreign(paths: Iterable[Path]) -> str | None:
    """Why others than root and this user could have written one of these; ``None``: nobody else could.

    Args:
        paths: files and folders; of a link, what it leads to counts. One that does not exist is left out.
    """
    for path in paths:
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{path} cannot be examined: {error.strerror}"
        if status.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user (uid {status.st_uid})"
        if status.st_mode & _OTHERS_WRITE:
            return f"others may write to {path} (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def everything_in(folder: Path) -> Iterator[Path]:
    """The folder and all that is below it, without following links to folders."""
    yield folder
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(parent, name)


def take_from_others(paths: Iterable[Path]) -> None:
    """Let nobody else write to these, as far as they are this user's.

    Raises:
        OSError: the file system refuses.
    """
    for path in paths:
        status = path.lstat()
        if status.st_uid == os.geteuid() and status.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(status.st_mode):
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
