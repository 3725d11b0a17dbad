"""The images of a data set as flat arrays: paths, labels, sizes, places in shards.

Why arrays and not lists of records: forked workers keep sharing their memory, whereas reading a Python object counts
a reference and so copies its page (pytorch issue 13246). C functions read the same arrays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipetune.datasets.index import RAW, ImageFile, ImageSet
from pipetune.decoders.contract import Files, Photo

#: Bits of a file's flags that say that it is a JPEG, stored pixels, or an image whose EXIF is disputed; the bits below
#: are its EXIF orientation.
_JPEG, _RAW_PIXELS, _DISPUTED = 0x80, 0x40, 0x20


class PhotoTable:
    """The images of a data set, by their position in it. Can be pickled.

    Args:
        images: the data set.
        hold: read all files now, into memory; decoders are given that.
    """

    def __init__(self, images: ImageSet, *, hold: bool = False) -> None:
        self._paths, self._starts = _zero_ended([image.path for image in images.images])
        self._flags = np.array([_flags(image) for image in images.images], np.uint8)
        self._sizes = np.array([image.upright_size for image in images.images], np.int32)
        self._labels = np.array([image.label for image in images.images], np.int64)
        self._shards = tuple(dict.fromkeys(image.shard for image in images.images if image.shard is not None))
        numbers = {shard: number for number, shard in enumerate(self._shards)}
        # [images, 3]: number of the shard, first byte there, bytes; empty where the images are files.
        self._places = np.array(
            [(numbers[i.shard], i.start, i.size_bytes) for i in images.images if i.shard is not None], np.int64
        )
        self._held: npt.NDArray[np.uint8] | None = None
        # Made once: there may be thousands of shards.
        self.files = (
            Files(*_zero_ended(self._shards), self._flags, self._places, self._sizes) if self._shards
            else Files(self._paths, self._starts, self._flags, None, self._sizes)
        )  # fmt: skip
        """The same for functions in C."""
        if hold:
            self._read_all()

    def _read_all(self) -> None:
        read = [bytes(self.photo(position).read()) for position in range(len(self))]
        sizes = np.array([len(data) for data in read], np.int64)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        # bytearray: a decoder that makes a tensor of the bytes wants memory that could be written to.
        self._held = np.frombuffer(bytearray().join(read), np.uint8)
        self._places = np.stack((np.zeros_like(sizes), starts, sizes), axis=1)
        self.files = self.files._replace(places=self._places, held=self._held)

    def __len__(self) -> int:
        return len(self._labels)

    def photo(self, position: int) -> Photo:
        """What a decoder needs to know of one image."""
        start, end = self._starts[position : position + 2].tolist()
        flags = int(self._flags[position])
        path = os.fsdecode(self._paths[start : end - 1].tobytes())
        width, height = self._sizes[position].tolist()
        photo = Photo(
            path, flags & ~(_JPEG | _RAW_PIXELS | _DISPUTED), bool(flags & _JPEG), height, width,
            is_raw=bool(flags & _RAW_PIXELS), exif_disputed=bool(flags & _DISPUTED),
        )  # fmt: skip
        if not len(self._places):
            return photo
        shard, start_at, size = self._places[position].tolist()
        if self._held is not None:
            return photo._replace(held=self._held[start_at : start_at + size].data)
        return photo._replace(shard=self._shards[shard], start=start_at, size=size)

    def label(self, position: int) -> int:
        """Number of the image's class."""
        return int(self._labels[position])

    def labels(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Numbers of the images' classes."""
        found: npt.NDArray[np.int64] = self._labels[positions]
        return found


def _zero_ended(paths: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """All paths in one array, each with a zero byte at its end, and where each begins; last, where all end."""
    encoded = [os.fsencode(path) + b"\0" for path in paths]
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(path) for path in encoded], out=starts[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), starts


def _flags(image: ImageFile) -> int:
    kind = _JPEG if image.format == "jpeg" else _RAW_PIXELS if image.format == RAW else 0
    return image.orientation | kind | (_DISPUTED if image.exif_disputed else 0)
