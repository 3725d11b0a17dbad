"""Names of the files that DALI reads, or of copies in memory, where DALI would turn an image wrongly.

DALI reads EXIF itself and cannot be told an orientation. With two EXIF blocks that disagree its process ends.
"""

from __future__ import annotations

import os

from pipetune.datasets.index import ImageFile
from pipetune.datasets.plain_exif import write_plain_exif
from pipetune.decoders.file_bytes import read_file
from pipetune.errors import PipetuneError
from pipetune.loaders.utf8_paths import Utf8Paths

#: Each copy costs memory and an open descriptor.
MAX_COPIES = 200


class DaliNames:
    """Names for images, valid in this process until :meth:`close`."""

    def __init__(self) -> None:
        self._utf8 = Utf8Paths()
        self._copies: dict[str, int] = {}
        self._paths: dict[str, str] = {}

    def name(self, image: ImageFile) -> str:
        """The name by which DALI reads an image.

        Raises:
            OSError: the file or its folder cannot be opened, or too many files are open.
            PipetuneError: more than :data:`MAX_COPIES` images have to be copied.
        """
        if not image.exif_disputed:
            return self._utf8.name(image.path)
        if image.path not in self._copies:
            if len(self._copies) >= MAX_COPIES:
                raise PipetuneError(
                    f"DALI reads the EXIF of more than {MAX_COPIES} images differently, such as {image.path!r}",
                    hint="use another decoder, or pack the images with pipetune pack --upright",
                )
            self._copies[image.path] = _copy_to_memory(image)
        name = f"/proc/self/fd/{self._copies[image.path]}"
        self._paths[name] = image.path
        return name

    def path(self, name: str) -> str:
        """The path of a name that :meth:`name` returned."""
        return self._paths.get(name) or self._utf8.path(name)

    def close(self) -> None:
        """Close the descriptors, and so drop the copies. Safe to call twice."""
        while self._copies:
            os.close(self._copies.popitem()[1])
        self._utf8.close()


def read_for_dali(image: ImageFile) -> bytes | memoryview:
    """The bytes of an image as DALI is given them."""
    data = read_file(image.path)
    return write_plain_exif(bytes(data), image.format, image.orientation) if image.exif_disputed else data


def _copy_to_memory(image: ImageFile) -> int:
    fd = os.memfd_create("pipetune-exif", os.MFD_CLOEXEC)
    try:
        data = memoryview(read_for_dali(image))
        while data:
            data = data[os.write(fd, data) :]
    except BaseException:
        os.close(fd)
        raise
    return fd
