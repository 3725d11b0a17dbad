"""The images of a data set as loader workers hold them, and the filling of a batch with them.

Paths and labels lie in three flat arrays and not in lists: workers that are forked share them for good, whereas looking
at a Python object counts a reference, and copies its page (pytorch issue 13246).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.decoders.contract import Array, Files, FillFunction, LoadFunction, Photo, Trial, bad_image, is_shortage
from pipetune.decoders.crop import Crop, draw_crop
from pipetune.decoders.layout import Layout

#: So many samples are asked for at once: then ``stopped`` is asked again.
_AT_ONCE = 8
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
        fill_some: does the same as ``load`` for several samples at once; a function of a module, too.
    """

    def __init__(
        self, images: ImageSet, load: LoadFunction, layout: Layout, seed: int, fill_some: FillFunction | None = None
    ) -> None:
        self._paths, self._starts = _zero_ended([image.path for image in images.images])
        self._labels = np.array([image.label for image in images.images], np.int64)
        self._flags = np.array([_flags(image) for image in images.images], np.uint8)
        self._shards = tuple(dict.fromkeys(image.shard for image in images.images if image.shard is not None))
        numbers = {shard: number for number, shard in enumerate(self._shards)}
        # In shards: which one, where in it, how long. Nothing otherwise.
        self._places = np.array(
            [(numbers[i.shard], i.start, i.size_bytes) for i in images.images if i.shard is not None], np.int64
        )
        # Made once: there may be thousands of shards.
        self._files = (
            Files(*_zero_ended(self._shards), self._flags, self._places) if self._shards
            else Files(self._paths, self._starts, self._flags, None)
        )  # fmt: skip
        self._sizes = np.array([image.upright_size for image in images.images], np.int32)
        self._load = load
        self._fill_some = fill_some
        self._layout = layout
        self._seed = seed

    def __len__(self) -> int:
        return len(self._labels)

    def photo(self, position: int) -> Photo:
        """The file at this place of the data set."""
        start, end = self._starts[position : position + 2].tolist()
        flags = int(self._flags[position])
        path = os.fsdecode(self._paths[start : end - 1].tobytes())
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
            stopped: asked before every few samples; the rest is then left out.

        Raises:
            BadImage: a file does not decode.
        """
        place = 0
        while place < len(tickets) and not stopped():
            if self._fill_some is not None:
                asked = tickets[place : place + _AT_ONCE]
                samples = self._layout.samples(batch, place, place + len(asked))
                done = self._fill_some(self._files, asked, self._seed, samples)
                place += done
                if done == len(asked):
                    continue
            self.decode(tickets[place], self._layout.sample(batch, place))
            place += 1

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


def _zero_ended(paths: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The paths one after the other, each with a zero byte at its end, and where each begins; last, where all end."""
    encoded = [os.fsencode(path) + b"\0" for path in paths]
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(path) for path in encoded], out=starts[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), starts


def _flags(image: ImageFile) -> int:
    return image.orientation | (_JPEG if image.format == "jpeg" else 0)
