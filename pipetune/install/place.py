"""Putting a built library into its place for good.

All of the work happens in a folder beside the place, which goes away whatever happens; the result is put in place by
renaming. A lock keeps two installations apart, and who holds it may clear away what a killed one left.
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
from pipetune.store.lock import locked

#: The result, in the work folder.
SITE = "site"


@contextlib.contextmanager
def installing(place: Path, tell: Callable[[str], None]) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A folder to work in, and what to call when its ``site`` is complete.

    Args:
        place: where ``site`` belongs.
        tell: is called with one line when somebody else is installing.

    Raises:
        PipetuneError: the disk failed; what was there before still is.
    """

    def waiting(waited_s: float) -> None:
        if not waited_s:
            tell("another pipetune is installing it: waiting")

    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.with_name(f".{place.name}.lock")
        with locked(lock, waiting) as alone, _work_folder(place, alone) as work:
            yield work, partial(_put_in_place, work, place)
    except OSError as error:
        raise PipetuneError(
            f"cannot install into {place}: {error.strerror or error}",
            hint="free some room there, or set XDG_DATA_HOME to a folder that you may write to",
        ) from error


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
