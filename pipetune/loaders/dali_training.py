"""DALI's pipeline to train with, over any order of samples.

DALI is given the paths of each batch, and its threads read them, so epochs, ranks and resuming are those of the other
loaders. In a measurement DALI's reader is given a list of all files, as in the code that a sweep prints.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.decoders.layout import layout_of
from pipetune.loaders.contract import Batch
from pipetune.loaders.dali import AHEAD, batch_of, decode, decoding_device, name_bad_image, windows_of
from pipetune.loaders.dali_names import DaliNames
from pipetune.loaders.hand_over import handed_over
from pipetune.loaders.order import Order
from pipetune.loaders.windows import WindowedOrder
from pipetune.records.sweep import Candidate


class DaliTrainingLoader:
    """A loader with a DALI pipeline per iteration (see :class:`pipetune.loaders.contract.Loader`).

    Args:
        images: the data set.
        order: the samples of each batch; the last batch of an epoch may be smaller.
        image_size: px.
        seed: of the random crops.
        device_index: of the CUDA device that the batches go to; ``None``: they go to none.
    """

    def __init__(
        self, candidate: Candidate, images: ImageSet, order: Order, *, image_size: int, seed: int,
        device_index: int | None,
    ) -> None:  # fmt: skip
        self._candidate = candidate
        self._images = images.images
        self._sizes = np.array([image.upright_size for image in images.images], np.int32)
        self._labels = np.array([[image.label] for image in images.images], np.int64)
        self._order = order
        self._layout = layout_of(candidate, image_size)
        self._seed = seed
        self._device_index = device_index
        self._decodes_on = decoding_device(candidate, device_index)
        self._lately: deque[list[ImageFile]] = deque(maxlen=candidate.prefetch_depth + AHEAD)
        """The images of the batches that DALI has asked for and may not have delivered."""
        self._names = DaliNames()
        self._open = True

    def __iter__(self) -> Iterator[Batch]:
        if not self._open:
            raise ValueError("this loader is closed")
        return handed_over(self._batches(), self._device_index)

    def _batches(self) -> Iterator[Batch]:
        iterator = DALIGenericIterator(
            [self._pipeline()], ["images", "labels"], size=-1, prepare_first_batch=False, last_batch_padded=False
        )
        while self._open:
            try:
                (output,) = next(iterator)
            except StopIteration:
                return
            except RuntimeError as error:
                # DALI leaves the name out of files that it is given by path.
                named = name_bad_image(error, itertools.chain.from_iterable(self._lately), self._decodes_on)
                raise named from error
            yield batch_of(output, self._layout)

    def _pipeline(self) -> Any:
        candidate = self._candidate
        pipeline = Pipeline(
            batch_size=candidate.batch_size, num_threads=candidate.num_workers, device_id=self._decodes_on,
            prefetch_queue_depth=candidate.prefetch_depth, exec_dynamic=True, seed=self._seed,
        )  # fmt: skip
        with pipeline:
            paths, labels, anchor, shape, mirror = fn.external_source(
                source=self._samples(), num_outputs=5, batch=True
            )  # fmt: skip
            images = decode(
                fn.io.file.read(paths), anchor, shape, mirror, candidate, self._layout,
                on_gpu=self._decodes_on is not None,
            )  # fmt: skip
            pipeline.set_outputs(images, labels)
        pipeline.build()
        return pipeline

    def _samples(self) -> Iterator[tuple[Any, ...]]:
        for sample_indices, crops in WindowedOrder(self._order, self._sizes, self._seed):
            positions = np.asarray(sample_indices) % len(self._images)
            images = [self._images[position] for position in positions.tolist()]
            self._lately.append(images)
            paths = [np.frombuffer(os.fsencode(self._dali_path(image)), np.uint8) for image in images]
            yield paths, self._labels[positions], *windows_of(crops)

    def _dali_path(self, image: ImageFile) -> str:
        """What DALI is given as a path, which need not be UTF-8 here."""
        return self._names.name(image) if image.exif_disputed else image.path

    def close(self) -> None:
        """End the iteration; DALI's threads end when the pipeline is garbage."""
        self._open = False
        self._names.close()
