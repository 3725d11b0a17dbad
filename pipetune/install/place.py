"""Putting a built library in its place, complete or not at all.

It is built in a work folder beside its place, which is removed in any case, and put in place by renaming. A lock lets
one installation run at a time, and its holder removes the work folders of killed ones.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pipetune.errors import PipetuneError
from pipetune.install.find import side_directory
from pipetune.machine.user_folders import no_folder
from pipetune.store.lock import locked

#: Name of the finished library's folder inside the work folder.
SITE = "site"
_VARIABLE = "XDG_DATA_HOME"


def place_of(name: str) -> Path:
    """The folder that a library is put into.

    Raises:
        UsageError: this user has none.
    """
    place = side_directory(name)
    if place is None:
        raise no_folder(name, _VARIABLE)
    return place.absolute()


@contextlib.contextmanager
def installing(place: Path, report: Callable[[str], None]) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A work folder, and the function to call when its ``site`` is complete.

    Args:
        place: the folder that ``site`` becomes.
        report: is called with one line when another process is installing.

    Raises:
        PipetuneError: the disk failed; an earlier library is kept.
    """

    def waiting(waited_s: float) -> None:
        if not waited_s:
            report("another pipetune is installing it: waiting")

    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.with_name(f".{place.name}.lock")
        with locked(lock, waiting) as alone, _work_folder(place, alone) as work:
            yield work, partial(_put_in_place, work, place)
    except OSError as error:
        raise PipetuneError(
            f"cannot install into {place}: {error.strerror or error}",
            hint=f"free some room there, or set {_VARIABLE} to a folder that you may write to",
        ) from error


@contextlib.contextmanager
def _work_folder(place: Path, alone: bool) -> Iterator[Path]:
    """A new folder on the same file system, removed at the end; with ``alone`` those of killed processes are, too."""
    prefix = f".{place.name}-"
    for left in place.parent.glob(f"{prefix}*") if alone else ():
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _put_in_place(work: Path, place: Path) -> None:
    """Two renames; whatever interrupts them in between brings the old folder back."""
    old = work / "old"
    try:
        if os.path.lexists(place):
            os.rename(place, old)
        os.rename(work / SITE, place)
    except BaseException:
        if os.path.lexists(old) and not os.path.lexists(place):
            os.rename(old, place)
        raise
