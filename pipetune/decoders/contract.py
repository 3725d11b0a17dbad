"""What a decoder offers, and what it is given."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pipetune.datasets.index import ImageFile
from pipetune.decoders.crop import Crop
from pipetune.decoders.file_bytes import read_file
from pipetune.records.sweep import Candidate

if TYPE_CHECKING:  # decoders of numpy arrays work without it
    import torch

#: Decodes one image and returns why it does not decode, or ``None``. It raises where the machine lacks something.
Trial = Callable[[ImageFile], str | None]


class BadImage(Exception):
    """An image could not be decoded; the text names the file.

    It is made from its text alone, because torch rebuilds a worker's exception in the main process from its text.
    """


def bad_image(path: str, reason: object) -> BadImage:
    """The error for a file that does not decode."""
    return BadImage(f"{BAD_IMAGE_PREFIX}{path!r}: {reason}")


def is_shortage(error: Exception) -> bool:
    """Whether the machine caused the error and not the image: no memory, no descriptors, a failing disk or network."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SHORTAGES)


_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)


#: Start of the text of a :class:`BadImage`, by which the child recognises one inside a library's own error text.
BAD_IMAGE_PREFIX = "cannot decode image "


Array = npt.NDArray[Any]
"""uint8, or float32 and normalised."""


class Photo(NamedTuple):
    """An image as a decoder is given it."""

    path: str
    orientation: int
    """EXIF orientation 1..8, from the header as it was when the data set was indexed."""
    is_jpeg: bool
    """It is a JPEG by its content, whatever its name."""
    height: int
    """Of the upright image (px), from the same header."""
    width: int
    shard: str | None = None
    """The tar file that contains it, where ``path`` is only a name; ``None``: it is a file of its own."""
    start: int = 0
    """Its first byte in the tar file."""
    size: int = 0
    """Its length in the tar file (bytes)."""
    held: memoryview | None = None
    """Its bytes, where they are in memory already; ``None``: they are to be read."""
    exif_disputed: bool = False
    """Its EXIF is damaged or there twice, so a library that turns images by itself may turn it otherwise."""
    is_raw: bool = False
    """Its bytes are pixels, uint8 ``[height, width, 3]``, and no encoded image."""

    @property
    def is_file(self) -> bool:
        """Its bytes are those of a file of its own, which can be opened."""
        return self.shard is None and self.held is None

    def read(self) -> memoryview:
        """The bytes of the file; valid in this thread until the next call.

        Raises:
            OSError: the file cannot be opened or read.
        """
        if self.held is not None:
            return self.held
        return read_file(self.path) if self.shard is None else read_file(self.shard, self.start, self.size)


#: ``window(height, width)`` -> the crop, once the upright size is known.
Window = Callable[[int, int], Crop]


#: ``load(photo, window, out)`` decodes, crops, resizes and flips into ``out`` (see :meth:`Layout.sample`), normalised
#: where that is float32. It raises whatever its library raises for a bad file.
LoadFunction = Callable[[Photo, Window, Array], None]


#: A decoder that decodes whole images offers the two parts of ``load`` as well: ``decode_whole(photo) -> image``, and
#: ``transform(image, window, out)``, which leaves the image as it is. Where ``decode_whole`` decodes into memory that
#: its thread uses again, the image is a NamedTuple of arrays and plain values; it can be copied by ``copy.deepcopy``.
DecodeFunction = Callable[[Photo], Any]
TransformFunction = Callable[[Any, Window, Array], None]


class Files(NamedTuple):
    """The files of a data set as arrays, for functions in C."""

    paths: npt.NDArray[np.uint8]
    """Paths of the files, or of the shards that contain them; each ends with a zero byte."""
    starts: npt.NDArray[np.int64]
    """First byte of each path."""
    flags: npt.NDArray[np.uint8]
    """EXIF orientation 1..8, plus 128 for a JPEG, 64 for stored pixels or 32 for disputed EXIF, of each file."""
    places: npt.NDArray[np.int64] | None
    """``[files, 3]`` in shards: number of the shard, first byte there, length (bytes); ``None``: they are files."""
    sizes: npt.NDArray[np.int32]
    """``[files, 2]``: width and height of the upright image (px). Stored pixels have as many bytes, times 3."""
    held: npt.NDArray[np.uint8] | None = None
    """The bytes of all files, where they are in memory: ``places`` are in it then, and no file is read."""


#: ``fill_some(files, sample_indices, seed, samples)`` decodes as many of the samples as it can, from the first on, into
#: ``samples`` (see :meth:`Layout.samples`), and returns their number. It raises nothing for a file that does not
#: decode: that sample is left to ``load``, which raises the error.
FillFunction = Callable[[Files, Sequence[int], int, Array], int]


class StoredWindow(NamedTuple):
    """A window of an image as it is stored (px), before its orientation is applied."""

    top: int
    left: int
    height: int
    width: int


class Encoded(NamedTuple):
    """A JPEG for a decoder on a device."""

    data: Array
    """Its bytes, uint8."""
    height: int
    """As stored (px), by its header when the data set was indexed; and ``width``."""
    width: int
    window: StoredWindow


#: ``decode(encoded)`` gives the pixels of each window, uint8 ``[3, height, width]`` on the device with any strides;
#: ``None`` for an image that this decoder does not decode. They are complete for what is queued on the current stream
#: afterwards, and may be freed when all has ended that reads them. Called by one thread at a time.
DeviceDecode = Callable[[Sequence[Encoded]], "list[torch.Tensor | None]"]


class DeviceDecoder(Protocol):
    """What the module of a decoder offers that decodes batches on a CUDA device.

    On the CPU, without one, it decodes in the same way; that is for tests of everything around the decoder.
    """

    load: LoadFunction
    """Decodes on the CPU what the device does not."""

    def open_device_decoder(self, candidate: Candidate, device: torch.device) -> DeviceDecode:
        """The function that decodes.

        Raises:
            PipetuneError: the library cannot use the device.
        """
