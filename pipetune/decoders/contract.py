"""What a decoder offers, and what it is given."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipetune.datasets.index import ImageFile
from pipetune.decoders.crop import Crop
from pipetune.decoders.file_bytes import read_file

#: Decodes one image: why it cannot be decoded, or ``None``. It raises where the machine lacks something.
Trial = Callable[[ImageFile], str | None]


class BadImage(Exception):
    """An image could not be decoded; the text names the file.

    It takes the text alone because torch rebuilds a worker's exception in the main process from its text.
    """


def bad_image(path: str, reason: object) -> BadImage:
    """The error for a file that does not decode."""
    return BadImage(f"{BAD_IMAGE_PREFIX}{path!r}: {reason}")


def is_shortage(error: Exception) -> bool:
    """The machine's fault and not the image's: no memory, no descriptors, a disk or network that fails."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SHORTAGES)


_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)


#: How a :class:`BadImage` begins, so that the child recognises one inside a library's own error text.
BAD_IMAGE_PREFIX = "cannot decode image "


Array = npt.NDArray[Any]
"""uint8, or float32 and normalised."""


class Photo(NamedTuple):
    """What a decoder needs to know of a file beforehand."""

    path: str
    orientation: int
    """EXIF orientation 1..8, from the header as it was when the data set was indexed."""
    is_jpeg: bool
    """By content."""
    height: int
    """Of the upright image (px), from the same header."""
    width: int
    shard: str | None = None
    """The tar file that it lies in; ``path`` is only a name then."""
    start: int = 0
    """Its place there, and its length (bytes)."""
    size: int = 0

    def read(self) -> memoryview:
        """Its bytes; valid in this thread until the next call.

        Raises:
            OSError: the file cannot be opened or read.
        """
        return read_file(self.path) if self.shard is None else read_file(self.shard, self.start, self.size)


#: ``window(height, width)`` gives the crop once the upright size is known.
Window = Callable[[int, int], Crop]


#: ``load(photo, window, out)`` decodes, crops, resizes and flips into ``out`` (see :meth:`Layout.sample`), normalised
#: where that is float32. It raises whatever its library raises for a bad file.
LoadFunction = Callable[[Photo, Window, Array], None]


class Files(NamedTuple):
    """The files of a data set as arrays, for functions in C."""

    paths: npt.NDArray[np.uint8]
    """Of the files, or of the shards that they lie in; each ends with a zero byte."""
    starts: npt.NDArray[np.int64]
    """Where each of these paths begins."""
    flags: npt.NDArray[np.uint8]
    """EXIF orientation 1..8, plus 128 for a JPEG, of each file."""
    places: npt.NDArray[np.int64] | None
    """``[files, 3]`` in shards: which one, the first byte there, how many."""


#: ``fill_some(files, tickets, seed, samples)`` decodes the samples of as many tickets as it can, from the first on,
#: into ``samples`` (see :meth:`Layout.samples`), and gives their number. It raises nothing for a file: the next sample
#: is left to ``load``, which says what is wrong with it.
FillFunction = Callable[[Files, Sequence[int], int, Array], int]
