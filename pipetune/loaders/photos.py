"""Photos: decodes the samples of a data set with a decoder's functions, into the places of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipetune.augmentation.recipes import BASIC, MIXUP
from pipetune.datasets.index import ImageSet
from pipetune.decoders.contract import Array, FillFunction, LoadFunction, Photo, bad_image, is_shortage
from pipetune.decoders.crop import draw_crop
from pipetune.decoders.layout import Layout, write_pixels
from pipetune.loaders.augmenting import Mixing, build_augmenter
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
        augment: what is done to each image besides, a name in :data:`pipetune.augmentation.recipes.RECIPES`.
    """

    def __init__(
        self, images: ImageSet, load: LoadFunction, layout: Layout, seed: int, fill_some: FillFunction | None = None,
        *, hold: bool = False, augment: str = BASIC,
    ) -> None:  # fmt: skip
        self._table = PhotoTable(images, hold=hold)
        self._load = load
        self._fill_some = fill_some
        self._layout = layout
        self._seed = seed
        self._augment = build_augmenter(augment, seed)
        self.mixing = Mixing(seed, len(images.classes)) if augment == MIXUP else None
        """Mixes the images of whole batches; ``None``: they are not mixed."""

    def __len__(self) -> int:
        return len(self._table)

    @property
    def seed(self) -> int:
        """Seed of the random crops."""
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

    def targets(self, sample_indices: Sequence[int]) -> npt.NDArray[Any]:
        """Labels of a batch of these samples: int64 ``[B]``, or float32 ``[B, classes]`` where its images are mixed."""
        labels = self.labels(sample_indices)
        return labels if self.mixing is None else self.mixing.labels(labels, sample_indices[0])

    def fill(self, sample_indices: Sequence[int], batch: Array, stopped: Callable[[], bool] = lambda: False) -> None:
        """Decode the samples into the first places of ``batch``.

        Args:
            stopped: asked before every few samples; when it returns true, the rest is left out.

        Raises:
            BadImage: a file does not decode.
        """
        place = 0
        while place < len(sample_indices) and not stopped():
            asked = sample_indices[place : place + (1 if self._fill_some is None else _AT_ONCE)]
            place += self._fill_places(asked, self._layout.samples(batch, place, place + len(asked)))
        if self.mixing is not None and not stopped():
            self.mixing.mix(batch[: len(sample_indices)], sample_indices[0])

    def _fill_places(self, sample_indices: Sequence[int], samples: Array) -> int:
        """Decode samples into their places, from the first on; their number."""
        done = 0 if self._fill_some is None else self._fill_at_once(self._fill_some, sample_indices, samples)
        if done < len(sample_indices):
            self.decode(sample_indices[done], samples[done])
            done += 1
        return done

    def _fill_at_once(self, fill_some: FillFunction, sample_indices: Sequence[int], samples: Array) -> int:
        if self._augment is None:
            return fill_some(self._table.files, sample_indices, self._seed, samples)
        size = self._layout.size
        pixels = np.empty((len(sample_indices), 3, size, size), np.uint8)
        done = fill_some(self._table.files, sample_indices, self._seed, pixels.transpose(0, 2, 3, 1))
        for sample_index, crop, out in zip(sample_indices[:done], pixels, samples, strict=False):
            write_pixels(self._augment(sample_index, crop).transpose(1, 2, 0), out)
        return done

    def decode(self, sample_index: int, out: Array) -> None:
        """Decode one sample into ``out`` (see :meth:`pipetune.decoders.layout.Layout.sample`), and augment it.

        Raises:
            BadImage: the file does not decode.
        """
        if self._augment is None:
            self._crop(sample_index, out)
            return
        pixels = np.empty((3, len(out), len(out)), np.uint8)
        self._crop(sample_index, pixels.transpose(1, 2, 0))
        write_pixels(self._augment(sample_index, pixels).transpose(1, 2, 0), out)

    def _crop(self, sample_index: int, out: Array) -> None:
        """One sample as it is before it is augmented: decoded, cropped, resized and flipped."""
        photo = self._table.photo(sample_index % len(self))
        try:
            self._load(photo, lambda height, width: draw_crop(self._seed, sample_index, height, width), out)
        except Exception as error:  # each decoder has exceptions of its own; the file's name is what helps
            if is_shortage(error):
                raise
            raise bad_image(photo.path, error) from error
