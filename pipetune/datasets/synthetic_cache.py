"""Synthetic data sets in the user's cache folder: each is made once, and is whole or not there.

Everything goes into a folder whose name holds ``.partial-``, the marker with the counts is flushed to the disk, and one
rename makes the set appear. A lock per set lets one process make it while others wait; a partial folder whose lock is
free belongs to a killed process and is removed. Where a file system has no locks, both processes make the set and the
second uses the first one's.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from pathlib import Path

from pipetune.datasets.folder_walk import Progress
from pipetune.datasets.photo_makers import PhotoJob, make_photos
from pipetune.datasets.synthetic_uri import SyntheticSpec
from pipetune.errors import PipetuneError
from pipetune.machine.user_folders import cache_folder, no_folder
from pipetune.store.files import sync_path
from pipetune.store.lock import locked, try_lock
from pipetune.units import format_bytes

CACHE_VARIABLE = "PIPETUNE_CACHE_DIR"
_MARKER = "complete.json"


def cache_root() -> str:
    """Where the sets are kept: ``$PIPETUNE_CACHE_DIR``, or the user's cache folder, and ``synthetic`` below it.

    Raises:
        UsageError: this user has neither.
    """
    base = os.path.expanduser(os.environ.get(CACHE_VARIABLE, "")) or cache_folder()
    if base is None:
        raise no_folder("synthetic images", CACHE_VARIABLE)
    return os.path.join(os.path.abspath(base), "synthetic")


def folder_of(spec: SyntheticSpec) -> str:
    """Where the set lies, or will lie."""
    return os.path.join(cache_root(), spec.folder_name)


def is_complete(folder: str, spec: SyntheticSpec) -> bool:
    """Whether the set is whole: its marker is there and the files on the disk have the count and bytes it names."""
    try:
        with open(os.path.join(folder, _MARKER), encoding="ascii") as file:
            marker = json.load(file)
        return marker["count"] == spec.count and (marker["count"], marker["bytes"]) == _measure(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _measure(folder: str) -> tuple[int, int]:
    """(files, bytes) of the pictures in the class folders of ``folder``."""
    count = total = 0
    with os.scandir(folder) as classes:
        for entry in classes:
            if entry.is_dir():
                with os.scandir(entry.path) as files:
                    for file in files:
                        count += 1
                        total += file.stat().st_size
    return count, total


def ensure_made(spec: SyntheticSpec, workers: int, report: Progress) -> None:
    """Make the set unless it is there, or wait for another process that makes it.

    Args:
        spec: which set.
        workers: processes that make pictures.
        report: called with (stage, done, total or ``None``).

    Raises:
        PipetuneError: the cache folder cannot be written, or has no room.
    """
    folder = folder_of(spec)
    if is_complete(folder, spec):
        return
    root = os.path.dirname(folder)

    def waiting(waited_s: float) -> None:
        report("waiting for another pipetune that makes these images", int(waited_s), None)

    try:
        os.makedirs(root, exist_ok=True)
        with locked(_lock_of(folder), waiting) as alone:
            if is_complete(folder, spec):
                return
            if alone:
                _remove_leftovers(root, folder)
            _check_room(root, spec)
            _fill(folder, spec, workers, report)
    except OSError as error:
        raise PipetuneError(
            f"cannot write the synthetic images into {root!r}: {error.strerror or error}",
            hint=f"set {CACHE_VARIABLE} to a folder that you can write",
        ) from error


def _fill(folder: str, spec: SyntheticSpec, workers: int, report: Progress) -> None:
    """Make the set in a partial folder, then move it into place with one rename."""
    temporary = f"{folder}.partial-{secrets.token_hex(4)}"
    try:
        os.mkdir(temporary)
        job = PhotoJob(
            folder=temporary, profile=spec.profile.name, seed=spec.seed, count=spec.count, classes=spec.classes
        )
        make_photos(job, workers=workers, progress=report)
        count, total = _measure(temporary)
        marker = Path(temporary, _MARKER)
        marker.write_text(json.dumps({"uri": spec.uri, "count": count, "bytes": total}), encoding="ascii")
        sync_path(marker)
        if os.path.lexists(folder) and not is_complete(folder, spec):
            _remove(folder)
        try:
            os.rename(temporary, folder)
        except OSError:
            # Only where locks do not work: somebody else was first, and made the same files.
            if not is_complete(folder, spec):
                raise
        sync_path(Path(folder).parent)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(os.path.dirname(folder), spec) from error
        raise
    finally:
        if os.path.lexists(temporary):
            _remove(temporary)


def _lock_of(folder: str) -> Path:
    return Path(f"{folder}.lock")


def _remove_leftovers(root: str, folder: str) -> None:
    """Remove partial folders that no process works on any more: those of ``folder``, and of sets whose lock is free."""
    for name in sorted(os.listdir(root)):
        owner, mark, _ = name.partition(".partial-")
        if not mark:
            continue
        if os.path.join(root, owner) == folder:
            _remove(os.path.join(root, name))
            continue
        with contextlib.suppress(OSError):
            fd, free = try_lock(_lock_of(os.path.join(root, owner)))
            if free:
                _remove(os.path.join(root, name))
            os.close(fd)


def _remove(folder: str) -> None:
    """Remove a tree. The marker goes first: whatever interrupts this, the rest does not look complete."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, _MARKER))
    shutil.rmtree(folder, ignore_errors=True)


def _check_room(root: str, spec: SyntheticSpec) -> None:
    if shutil.disk_usage(root).free < spec.expected_bytes:
        raise _no_room(root, spec)


def _no_room(root: str, spec: SyntheticSpec) -> PipetuneError:
    free = shutil.disk_usage(root).free
    return PipetuneError(
        f"{spec.uri} needs about {format_bytes(spec.expected_bytes)} ({spec.expected_bytes} bytes) "
        f"and {format_bytes(free)} ({free} bytes) are free in {root!r}",
        hint=f"use a smaller n, or set {CACHE_VARIABLE} to a folder on another disk",
    )
