"""The images of a data set as loader workers hold them, and the filling of a batch with them.

Paths and labels lie in three flat arrays and not in lists: workers that are forked share them for good, whereas looking
at a Python object counts a reference, and copies its page (pytorch issue 13246).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipetune.backends.contract import Trial, bad_image, is_shortage
from pipetune.backends.crop import Crop, draw_crop
from pipetune.backends.file_bytes import read_file
from pipetune.backends.layout import Array, Layout
from pipetune.datasets.index import ImageFile, ImageSet


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

#: Edge (px) to which a trial resizes: only decoding matters.
_TRIAL_SIZE = 8
_JPEG = 0x80


class Photos:
    """Fills batches. Can be pickled where ``load`` is a function of a module.

    Args:
        images: what tickets speak of: ``ticket % len(images)`` is the image.
        load: of the decode backend.
        layout: of the batches.
        seed: of the random crops.
    """

    def __init__(self, images: ImageSet, load: LoadFunction, layout: Layout, seed: int) -> None:
        encoded = [os.fsencode(image.path) for image in images.images]
        self._paths = np.frombuffer(b"".join(encoded), np.uint8)
        self._ends = np.cumsum([len(path) for path in encoded], dtype=np.int64)
        self._labels = np.array([image.label for image in images.images], np.int64)
        self._flags = np.array([_flags(image) for image in images.images], np.uint8)
        self._shards = tuple(dict.fromkeys(image.shard for image in images.images if image.shard is not None))
        numbers = {shard: number for number, shard in enumerate(self._shards)}
        # In shards: which one, where in it, how long. Nothing otherwise.
        self._places = np.array(
            [(numbers[i.shard], i.start, i.size_bytes) for i in images.images if i.shard is not None], np.int64
        )
        self._sizes = np.array([image.upright_size for image in images.images], np.int32)
        self._load = load
        self._layout = layout
        self._seed = seed

    def __len__(self) -> int:
        return len(self._labels)

    def photo(self, position: int) -> Photo:
        """The file at this place of the data set."""
        start = int(self._ends[position - 1]) if position else 0
        flags = int(self._flags[position])
        path = os.fsdecode(self._paths[start : int(self._ends[position])].tobytes())
        width, height = self._sizes[position].tolist()
        photo = Photo(path, flags & ~_JPEG, bool(flags & _JPEG), height, width)
        if not len(self._places):
            return photo
        shard, start_at, size = self._places[position].tolist()
        return photo._replace(shard=self._shards[shard], start=start_at, size=size)

    def label(self, ticket: int) -> int:
        """Index of the class."""
        return int(self._labels[ticket % len(self)])

    def labels(self, tickets: Sequence[int]) -> npt.NDArray[np.int64]:
        """Of a batch."""
        found: npt.NDArray[np.int64] = self._labels[np.asarray(tickets) % len(self)]
        return found

    def fill(self, tickets: Sequence[int], batch: Array, stopped: Callable[[], bool] = lambda: False) -> None:
        """Decode the samples into the first places of ``batch``.

        Args:
            stopped: asked before each sample; the rest is then left out.

        Raises:
            BadImage: a file does not decode.
        """
        for place, ticket in enumerate(tickets):
            if stopped():
                return
            self.decode(ticket, self._layout.sample(batch, place))

    def decode(self, ticket: int, out: Array) -> None:
        """One sample.

        Raises:
            BadImage: the file does not decode.
        """
        photo = self.photo(ticket % len(self))
        try:
            self._load(photo, lambda height, width: draw_crop(self._seed, ticket, height, width), out)
        except Exception as error:  # each decoder has exceptions of its own; the file's name is what helps
            if is_shortage(error):
                raise
            raise bad_image(photo.path, error) from error


def trial_of(load: LoadFunction) -> Trial:
    """Tries an image with the function that the loader uses."""

    def try_decode(image: ImageFile) -> str | None:
        out = np.empty((_TRIAL_SIZE, _TRIAL_SIZE, 3), np.uint8)
        width, height = image.upright_size
        photo = Photo(
            image.path, image.orientation, image.format == "jpeg", height, width, image.shard, image.start,
            image.size_bytes,
        )  # fmt: skip
        try:
            load(photo, lambda height, width: Crop(0, 0, height, width, False), out)
        except Exception as error:  # each decoder has exceptions of its own
            if is_shortage(error):
                raise
            return str(error) or type(error).__name__
        return None

    return try_decode


def _flags(image: ImageFile) -> int:
    return image.orientation | (_JPEG if image.format == "jpeg" else 0)
