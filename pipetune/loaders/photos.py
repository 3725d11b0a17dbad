"""Photos: decodes the samples of a data set with a decoder's functions, into the places of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pipetune.datasets.index import ImageSet
from pipetune.decoders.contract import Array, FillFunction, LoadFunction, Photo, bad_image, is_shortage
from pipetune.decoders.crop import draw_crop
from pipetune.decoders.layout import Layout
from pipetune.loaders.photo_table import PhotoTable

#: Number of samples that one call of ``fill_some`` is asked for, before ``stopped`` is asked again.
_AT_ONCE = 8


class Photos:
    """Fills batches with samples. A sample index names an image, ``index % len(images)``, and its random crop.

    Can be pickled where ``load`` and ``fill_some`` are functions of a module.

    Args:
        images: the data set.
        load: decodes one sample (:data:`pipetune.decoders.contract.LoadFunction`).
        layout: of the batches.
        seed: of the random crops.
        fill_some: decodes several samples at once (:data:`pipetune.decoders.contract.FillFunction`).
        hold: read all files now; decoding finds them in memory.
    """

    def __init__(
        self, images: ImageSet, load: LoadFunction, layout: Layout, seed: int, fill_some: FillFunction | None = None,
        *, hold: bool = False,
    ) -> None:  # fmt: skip
        self._table = PhotoTable(images, hold=hold)
        self._load = load
        self._fill_some = fill_some
        self._layout = layout
        self._seed = seed

    def __len__(self) -> int:
        return len(self._table)

    @property
    def seed(self) -> int:
        """Of the random crops."""
        return self._seed

    @property
    def sizes(self) -> npt.NDArray[np.int32]:
        """``[images, 2]``: width and height of each upright image (px)."""
        return self._table.files.sizes

    def photo(self, sample_index: int) -> Photo:
        """The image of a sample, as a decoder is given it."""
        return self._table.photo(sample_index % len(self))

    def label(self, sample_index: int) -> int:
        """Number of the sample's class."""
        return self._table.label(sample_index % len(self))

    def labels(self, sample_indices: Sequence[int]) -> npt.NDArray[np.int64]:
        """Numbers of the samples' classes."""
        return self._table.labels(np.asarray(sample_indices) % len(self))

    def fill(self, sample_indices: Sequence[int], batch: Array, stopped: Callable[[], bool] = lambda: False) -> None:
        """Decode the samples into the first places of ``batch``.

        Args:
            stopped: asked before every few samples; when it returns true, the rest is left out.

        Raises:
            BadImage: a file does not decode.
        """
        place = 0
        while place < len(sample_indices) and not stopped():
            if self._fill_some is not None:
                asked = sample_indices[place : place + _AT_ONCE]
                samples = self._layout.samples(batch, place, place + len(asked))
                done = self._fill_some(self._table.files, asked, self._seed, samples)
                place += done
                if done == len(asked):
                    continue
            self.decode(sample_indices[place], self._layout.sample(batch, place))
            place += 1

    def decode(self, sample_index: int, out: Array) -> None:
        """Decode one sample into ``out`` (see :meth:`pipetune.decoders.layout.Layout.sample`).

        Raises:
            BadImage: the file does not decode.
        """
        photo = self._table.photo(sample_index % len(self))
        try:
            self._load(photo, lambda height, width: draw_crop(self._seed, sample_index, height, width), out)
        except Exception as error:  # each decoder has exceptions of its own; the file's name is what helps
            if is_shortage(error):
                raise
            raise bad_image(photo.path, error) from error
