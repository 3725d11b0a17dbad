"""How the run folder's files are put on the disk: whole lines, whole files, and one line per refusal.

A line counts once its newline is there. An append that fails is cut off again; a torn last line, which a power cut or
a kill leaves, is cut off before the next append, so that no line is ever glued to the remains of another.

Why no library: a whole file takes ten lines (temporary file, fsync, rename), and none cuts off a half-written line.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipetune.errors import PipetuneError
from pipetune.records.sweep import SCHEMA

RUNS_FOLDER = Path("pipetune-runs")
RUN_FILE = "run.json"
OUTCOMES_FILE = "outcomes.jsonl"
RESULT_FILE = "result.json"
#: What a script that was tuned has written.
WRITTEN_FILE = "written.json"
#: Windows of a watch.
WINDOWS_FILE = "windows.jsonl"
TIMELINES_FOLDER = "timelines"
LOCK_FILE = "lock"

#: Permissions of what is in a run folder, and of the folder: for this user alone. Commands, paths and whatever the job
#: printed are in it. Who wants to share a run gives the right with chmod.
OWN_FILE, OWN_FOLDER = 0o600, 0o700

#: A whole file is written under such a name first, so many random bytes and ``.tmp``.
_UNFINISHED, _RANDOM_BYTES = ".pipetune-", 8
#: A torn line is looked for in pieces of this size, from the end.
_BACKWARDS_BYTES = 1 << 20
_ELSEWHERE = "check its permissions, or name another place"
_HINTS = {
    errno.ENOSPC: "free some space, or name another place",
    errno.EDQUOT: "free some space, or name another place",
    errno.EROFS: "name another place",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
}


def append_lines(target: Path, data: bytes, *, sync: bool) -> None:
    """Add whole lines to a file, all of them or none. With ``sync`` they are on the disk when this returns.

    A new file is for this user alone.

    Raises:
        PipetuneError: the disk refuses; the lines that were there before stay readable.
    """
    with os_errors_as("write", target):
        fd = os.open(target, os.O_RDWR | os.O_CREAT, OWN_FILE)
        try:
            end = _end_of_lines(fd)
            os.lseek(fd, end, os.SEEK_SET)
            _write_or_cut(fd, data, end, sync=sync)
        finally:
            os.close(fd)
        if sync and end == 0:
            sync_path(target.parent)


def append_to_log(target: Path, data: bytes) -> None:
    """Add whole lines to a file that may not be pipetune's alone: nothing in it is changed, whatever it holds.

    A last line without an end, which somebody may still be writing, gets one first. A new file is for this user alone.

    Raises:
        PipetuneError: the disk refuses.
    """
    with os_errors_as("write", target):
        fd = os.open(target, os.O_RDWR | os.O_APPEND | os.O_CREAT, OWN_FILE)
        try:
            status = os.fstat(fd)
            regular = stat.S_ISREG(status.st_mode)
            if regular and status.st_size and os.pread(fd, 1, status.st_size - 1) != b"\n":
                data = b"\n" + data
            _write(fd, data)
            if regular:
                os.fsync(fd)
        finally:
            os.close(fd)


def replace_file(target: Path, parts: Iterable[bytes], *, mode: int = 0o666) -> None:
    """Write a whole file: a reader sees the old contents or the new, never a part, even after a power cut.

    Args:
        target: its folder exists.
        parts: the contents, written one after the other.
        mode: its permissions, of which the process's umask takes some.

    Raises:
        PipetuneError: the disk refuses. The old contents stay, as they do whatever ``parts`` raises.
    """
    # A name that nobody can foresee, and no file or link that is there already: the folder may be shared.
    unfinished = target.with_name(f"{_UNFINISHED}{secrets.token_hex(_RANDOM_BYTES)}.tmp")
    with os_errors_as("write", target):
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(fd, "wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, target)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        sync_path(target.parent)


def remove_unfinished_files(folder: Path) -> None:
    """What :func:`replace_file` has left in a folder where its process was killed.

    Only where no other process writes into the folder.

    Raises:
        OSError: it cannot be removed.
    """
    for path in folder.glob(f"{_UNFINISHED}*.tmp"):
        number = path.name.removeprefix(_UNFINISHED).removesuffix(".tmp")
        if len(number) == 2 * _RANDOM_BYTES and set(number) <= set("0123456789abcdef"):
            path.unlink()


def sync_path(path: Path) -> None:
    """Bring a file's contents or a folder's entries to the disk.

    Some file systems cannot do it for a folder, and a folder that may be written to but not listed cannot be opened.

    Raises:
        OSError: the disk refuses.
    """
    try:
        fd = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(fd)


def encode(what: str, content: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """``content`` with its schema as JSON and a newline; ``what`` names it in the error.

    Raises:
        PipetuneError: a number in it is infinite or not a number.
    """
    content = {"schema": SCHEMA, **content}
    try:
        return json.dumps(content, allow_nan=False, indent=indent).encode("ascii") + b"\n"
    except ValueError as error:
        bad = next(_not_finite(content), str(error))
        raise PipetuneError(f"{what}: {bad}", hint="a value that was not measured has to be None") from error


def plain_name(name: str) -> str:
    """The name itself.

    Raises:
        ValueError: it is not safe as a file name.
    """
    if not is_plain_name(name):
        raise ValueError(f"{name!r} is not safe as a file name")
    return name


def is_plain_name(name: str) -> bool:
    """It is safe as a file name, on every system and in every shell."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,199}", name) is not None


@contextlib.contextmanager
def os_errors_as(action: str, path: Path, *, passed: type[OSError] | tuple[()] = ()) -> Iterator[None]:
    """Turn the operating system's errors into a PipetuneError: ``cannot ACTION PATH: REASON``.

    Args:
        action: what is done, as a verb.
        path: to which file or folder.
        passed: errors of this type are raised as they are.

    Raises:
        PipetuneError: the operating system raised another error.
    """
    try:
        yield
    except passed:
        raise
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, _ELSEWHERE)
        if action in ("read", "list"):
            hint = "put back what pipetune wrote there" if error.errno == errno.EINVAL else "check its permissions"
        raise PipetuneError(f"cannot {action} {path}: {error.strerror or error}", hint=hint) from error


def _end_of_lines(fd: int) -> int:
    """Size (bytes) of the file without a torn last line, which is cut off."""
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return size
    end = start = size
    while start > 0 and end == size:
        start = max(0, start - _BACKWARDS_BYTES)
        found = os.pread(fd, _BACKWARDS_BYTES, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
    end = 0 if end == size else end
    os.ftruncate(fd, end)
    return end


def _write_or_cut(fd: int, data: bytes, end: int, *, sync: bool) -> None:
    complete = False
    try:
        _write(fd, data)
        complete = True
        if sync:
            os.fsync(fd)
    except BaseException as error:
        # Ctrl-C while waiting for the disk keeps a line that is whole: it holds a measurement that took a minute.
        if isinstance(error, OSError) or not complete:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, end)
        raise


def _write(fd: int, data: bytes) -> None:
    """All of it: a nearly full disk takes a part first and complains at the next call."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _not_finite(value: Any, where: str = "") -> Iterator[str]:
    """Where a number is that JSON cannot hold: ``'measurement.goodput is nan'``."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{where} is {value}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _not_finite(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, (list, tuple)):
        for position, inner in enumerate(value):
            yield from _not_finite(inner, f"{where}[{position}]")
