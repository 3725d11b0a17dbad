"""UTF-8 names for files whose own names are not UTF-8, for libraries that take no others.

An open folder has a second name, ``/proc/self/fd/N``. A folder of links would be left behind by a killed process.
"""

from __future__ import annotations

import os


class Utf8Paths:
    """Names for files, valid until :meth:`close`; each folder with such a file costs an open descriptor."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self._fds: list[int] = []

    def name(self, path: str) -> str:
        """The path itself if it is UTF-8; otherwise a UTF-8 name that is valid in this process.

        Raises:
            OSError: the file or its folder cannot be opened, or too many files are open.
        """
        if _is_utf8(path):
            return path
        folder, base = os.path.split(path)
        name = f"{self._open(folder)}/{base}" if _is_utf8(base) else self._open(path)
        self._paths[name] = path
        return name

    def path(self, name: str) -> str:
        """The path of a name that :meth:`name` returned."""
        return self._paths.get(name, name)

    def close(self) -> None:
        """Close the descriptors. Safe to call twice."""
        while self._fds:
            os.close(self._fds.pop())
        self._names.clear()

    def _open(self, path: str) -> str:
        if path not in self._names:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._fds.append(fd)
            self._names[path] = f"/proc/self/fd/{fd}"
        return self._names[path]


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
