"""A shard that is one file: written under another name, brought to the disk, and renamed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pipetune.store.files import sync_path

#: Written in pieces of this size: a system call for each header would cost more than the header.
_BUFFER = 1 << 20
#: Ending of what is not finished.
UNFINISHED = ".tmp"


def unfinished(folder: Path, name: str) -> Path:
    """Where a shard is written at first. With the process in its name: two never write into one file."""
    return folder / f"{name}.{os.getpid()}{UNFINISHED}"


class ShardFile:
    """The part of a :class:`~pipetune.packing.formats.contract.ShardWriter` that such formats share."""

    def __init__(self, folder: Path, name: str, samples: int) -> None:
        self.name, self.samples, self.at = name, samples, 0
        self._target = folder / name
        self._unfinished = unfinished(folder, name)
        self._file = self._unfinished.open("wb", buffering=_BUFFER)
        try:
            self.begin()
        except BaseException:
            self.abandon()
            raise

    def begin(self) -> None:
        """Write what comes before the first sample."""

    def end(self) -> None:
        """Write what comes after the last sample."""

    def write(self, *parts: bytes | memoryview) -> None:
        """Append."""
        for part in parts:
            self._file.write(part)
            self.at += len(part)

    def overwrite(self, data: bytes) -> None:
        """Write over the beginning."""
        self._file.seek(0)
        self._file.write(data)
        self._file.seek(0, os.SEEK_END)

    def finish(self) -> int:
        """See the contract."""
        self.end()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self.at

    def publish(self) -> None:
        """See the contract."""
        self._unfinished.replace(self._target)
        sync_path(self._target.parent)

    def abandon(self) -> None:
        """See the contract."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._unfinished.unlink()
