"""One line of the source of a watched job, read where the job would read it.

Which file that is, the job decides: a frame can name anything. So a file is opened only once it is known to be a plain
one (a pipe would block, some devices act when they are opened), and never more of it is read than a source has.

Why not ``linecache``: it opens whatever it is given, reads all of it, and keeps it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import lru_cache

from pipetune.sampler.stacks.activity import Frame

#: A larger file is no source that anybody wrote, and so many are kept at most.
_MAX_BYTES, _MAX_FILES = 2_000_000, 16


def source_line(pid: int, proc: str = "/proc") -> Callable[[Frame], str]:
    """A function that reads a frame's source line as the process itself would: in its root and working directory."""

    def line_of(frame: Frame) -> str:
        if frame.line <= 0 or frame.path.startswith("<"):
            return ""
        below = "root" if frame.path.startswith("/") else "cwd"
        return _line(f"{proc}/{pid}/{below}/{frame.path.lstrip('/')}", frame.line)

    return line_of


def _line(path: str, number: int) -> str:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)  # opens nothing yet: it only holds on to the file
    except (OSError, ValueError):
        return ""
    try:
        about = os.fstat(place)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_BYTES:
            return ""
        lines = _lines(_Held(place), (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns))
        return lines[number - 1] if number <= len(lines) else ""
    except OSError:
        return ""
    finally:
        os.close(place)


class _Held(int):
    """A descriptor, all of which count as equal: a file is known by what it is, not by how it is held."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=_MAX_FILES)
def _lines(place: _Held, identity: tuple[int, int, int, int]) -> tuple[str, ...]:
    file = os.open(f"/proc/self/fd/{int(place)}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        # What the file was long when it was found: files of the kernel have no length, and some never end.
        text = os.read(file, identity[2])
    finally:
        os.close(file)
    return tuple(text.decode("utf-8", "replace").splitlines(keepends=True))
