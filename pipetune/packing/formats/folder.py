"""A folder per class with a file per image, as ``ImageFolder`` reads it. A shard is a number of such files."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from pipetune.packing.formats.contract import Format, Place, Sample
from pipetune.packing.formats.shard_file import unfinished
from pipetune.store.files import sync_path


class FolderWriter:
    """See :class:`pipetune.packing.formats.contract.ShardWriter`."""

    def __init__(self, folder: Path, name: str, samples: int) -> None:
        self._folder, self._unfinished = folder, unfinished(folder, name)
        self._names: list[str] = []
        self._bytes = 0
        shutil.rmtree(self._unfinished, ignore_errors=True)
        self._unfinished.mkdir()

    def add(self, sample: Sample) -> Place:
        """A file."""
        name = f"{sample.key}.{sample.ending}"
        file = self._unfinished / str(len(self._names))
        with file.open("wb") as out:
            out.write(sample.data)
        self._names.append(name)
        self._bytes += len(sample.data)
        return Place(name, 0, len(sample.data))

    def finish(self) -> int:
        """Bring the files to the disk."""
        for number in range(len(self._names)):
            fd = os.open(self._unfinished / str(number), os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        return self._bytes

    def publish(self) -> None:
        """Move them to their classes."""
        folders = set()
        for number, name in enumerate(self._names):
            target = self._folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (self._unfinished / str(number)).replace(target)
            folders.add(target.parent)
        for folder in sorted(folders):
            sync_path(folder)
        sync_path(self._folder)
        self.abandon()

    def abandon(self) -> None:
        """Delete what was not published."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self._unfinished)


FOLDER = Format(name="folder", shard_name="part-{:06d}".format, open=FolderWriter, keeps_names=True)
