"""The loader ``dali``: NVIDIA DALI's reader, decoder, resize and normalisation in one C++ pipeline with own threads.

On a CUDA workload the decoder is DALI's ``mixed`` one (CPU and GPU, with the hardware JPEG engine where there is one)
and the rest runs on the GPU; otherwise everything runs on the CPU (``device_id=None``). Only the window is decoded, as
far as the format allows (``image_slice``), which is how DALI does this transform.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.decoders.contract import Trial, bad_image, is_shortage
from pipetune.decoders.crop import Crop, draw_crop
from pipetune.decoders.file_bytes import read_file
from pipetune.decoders.layout import Layout, layout_of
from pipetune.loaders.after_copies import AfterCopies
from pipetune.loaders.contract import Batch, Loader
from pipetune.loaders.order import EndlessOrder, Order
from pipetune.loaders.utf8_paths import Utf8Paths
from pipetune.records.imagenet import MEAN, STD
from pipetune.records.sweep import Candidate, Workload

#: Length of the file list that DALI's reader cycles through; whole epochs, at least this many samples.
_LIST_SAMPLES = 100_000
#: How DALI names a file that it cannot decode, within a longer text; and the reason that is reported instead.
_BAD_SAMPLE = re.compile(r"Failed to decode sample #\d+ : (.*)")
_CANNOT_READ = "DALI cannot read this file"


class _DaliLoader:
    def __init__(self, pipeline: Any, paths: Utf8Paths, layout: Layout, device_index: int | None) -> None:
        self._pipeline: Any = pipeline
        self._paths = paths
        self._layout = layout
        self._device_index = device_index

    def __iter__(self) -> Iterator[Batch]:
        return handed_over(self._batches(), self._device_index)

    def _batches(self) -> Iterator[Batch]:
        # Otherwise the constructor waits for the first batch, which would count as construction.
        iterator = DALIGenericIterator([self._pipeline], ["images", "labels"], size=-1, prepare_first_batch=False)
        while self._pipeline is not None:
            try:
                (output,) = next(iterator)
            except StopIteration:
                return
            except RuntimeError as error:
                found = _BAD_SAMPLE.search(str(error))
                raise (bad_image(self._paths.path(found[1]), _CANNOT_READ) if found else error) from error
            yield batch_of(output, self._layout)

    def close(self) -> None:
        self._pipeline = None
        self._paths.close()


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """See :mod:`pipetune.loaders.contract`. ``num_workers`` are DALI's threads, ``prefetch_depth`` its queue depth."""
    device_index = workload.accelerator.cuda_index
    on_gpu = device_index is not None
    layout = layout_of(candidate, workload.image_size)
    pipeline = Pipeline(
        batch_size=candidate.batch_size,
        num_threads=candidate.num_workers,
        device_id=device_index,
        prefetch_queue_depth=candidate.prefetch_depth,
        exec_dynamic=True,
        seed=workload.seed,
    )
    order = EndlessOrder(len(images.images), candidate.batch_size, workload.seed)
    epochs = 1 if workload.cache == "cold" else -(-_LIST_SAMPLES // len(images.images))
    sample_indices = [sample_index for epoch in range(epochs) for sample_index in order.epoch(epoch)]
    listed = [images.images[sample_index % len(images.images)] for sample_index in sample_indices]
    utf8 = Utf8Paths()
    with pipeline:
        encoded, labels = fn.readers.file(
            files=[utf8.name(image.path) for image in listed],
            labels=[image.label for image in listed],
            random_shuffle=False,
        )
        windows = _Windows(images, sample_indices, candidate.batch_size, workload, once=workload.cache == "cold")
        anchor, shape, mirror = fn.external_source(source=windows, num_outputs=3, batch=True)
        pipeline.set_outputs(decode(encoded, anchor, shape, mirror, candidate, layout, on_gpu=on_gpu), labels)
    pipeline.build()
    return _DaliLoader(pipeline, utf8, layout, device_index)


def open_training(
    candidate: Candidate, images: ImageSet, order: Order, *, image_size: int, seed: int, device_index: int | None,
    decodes_there: bool,
) -> Loader:  # fmt: skip
    """See :mod:`pipetune.loaders.contract`."""
    from pipetune.loaders.dali_training import DaliTrainingLoader

    return DaliTrainingLoader(
        candidate, images, order, image_size=image_size, seed=seed, device_index=device_index,
        decodes_there=decodes_there,
    )  # fmt: skip


def batch_of(output: dict[str, torch.Tensor], layout: Layout) -> Batch:
    """The batch that DALI has made, taken out of its dictionary, which a generator may keep."""
    return Batch(layout.images(output.pop("images")), output.pop("labels").view(-1).to(torch.int64))


def handed_over(batches: Iterator[Batch], device_index: int | None) -> Iterator[Batch]:
    """The batches, each kept until the CUDA device has done all that was queued with it; labels in page-locked memory,
    and so are images that the CPU has decoded.

    Why: DALI's tensors are its own memory (with ``exec_dynamic``), and it decodes into that again as soon as the host
    has no reference to it, while the step on the batch may still be queued. It waits for no stream of torch's then.
    """
    if device_index is None:
        yield from batches
        return
    copies = AfterCopies(device_index)
    for images, labels in batches:
        kept = copies.held(images) if images.is_cuda else copies.pinned(images.numpy())
        batch = Batch(kept, copies.pinned(labels.numpy()))
        del kept
        del images, labels
        yield batch
        del batch
        copies.asked()


def decode(
    encoded: Any, anchor: Any, shape: Any, mirror: Any, candidate: Candidate, layout: Layout, *, on_gpu: bool
) -> Any:
    """The part of a pipeline that makes images of files: decode the window, resize (antialiased), mirror, normalise.

    Args:
        anchor: top and left of the window (px), and ``shape``: its height and width.
        mirror: 1 where it is to be flipped.
        layout: of the batch.
    """
    engine: dict[str, Any] = {}
    if on_gpu and candidate.hw_decoder_load is not None:
        engine["hw_decoder_load"] = candidate.hw_decoder_load
    decoded = fn.decoders.image_slice(
        encoded, anchor, shape, axis_names="HW", normalized_anchor=False, normalized_shape=False,
        device="mixed" if on_gpu else "cpu", output_type=types.RGB, **engine,
    )  # fmt: skip
    resized = fn.resize(decoded, size=(layout.size, layout.size), interp_type=types.INTERP_LINEAR, antialias=True)
    scaling: dict[str, Any] = {}
    if not layout.uint8:
        scaling = {"mean": [255 * value for value in MEAN], "std": [255 * value for value in STD]}
    return fn.crop_mirror_normalize(
        resized, mirror=mirror, dtype=types.UINT8 if layout.uint8 else types.FLOAT,
        output_layout="HWC" if layout.channels_last else "CHW", **scaling,
    )  # fmt: skip


def windows_of(crops: Sequence[Crop]) -> tuple[Any, Any, Any]:
    """Anchor, shape and mirror of a batch's windows, as DALI's operators take them."""
    anchor = np.array([(crop.top, crop.left) for crop in crops], np.float32)
    shape = np.array([(crop.height, crop.width) for crop in crops], np.float32)
    return anchor, shape, np.array([[int(crop.flip)] for crop in crops], np.int32)


def failed_to_decode(error: RuntimeError) -> bool:
    """Whether DALI's error says that an image does not decode."""
    return "Failed to decode" in str(error)


def open_trial(workload: Workload) -> Trial:
    """See :mod:`pipetune.loaders.contract`."""
    return trial_on(workload.accelerator.cuda_index)


def trial_on(device_index: int | None) -> Trial:
    """A trial with the decoder of a CUDA device, or of the CPU. After a bad image the pipeline is made anew."""
    pipeline: Any = None

    def try_decode(image: ImageFile) -> str | None:
        nonlocal pipeline
        pipeline = pipeline or _trial_pipeline(device_index)
        try:
            pipeline.feed_input("encoded", [np.array(read_file(image.path))])
            (decoded,) = pipeline.run()
            decoded.as_cpu()  # waits for the GPU, where one decodes
        except RuntimeError as error:
            pipeline = None
            if not failed_to_decode(error):
                raise
            return _CANNOT_READ
        except (OSError, ValueError) as error:
            if is_shortage(error):
                raise
            return str(error)
        return None

    return try_decode


def _trial_pipeline(device_id: int | None) -> Any:
    pipeline = Pipeline(batch_size=1, num_threads=1, device_id=device_id, prefetch_queue_depth=1, exec_dynamic=True)
    with pipeline:
        encoded = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)
        device = "cpu" if device_id is None else "mixed"
        pipeline.set_outputs(fn.decoders.image(encoded, device=device, output_type=types.RGB))
    pipeline.build()
    return pipeline


class _Windows:
    """The crop windows of each batch, in step with the reader: the n-th sample gets the window of the n-th index."""

    def __init__(
        self, images: ImageSet, sample_indices: list[int], batch_size: int, workload: Workload, once: bool
    ) -> None:
        self._sizes = [image.upright_size for image in images.images]
        self._sample_indices = sample_indices
        self._batch_size = batch_size
        self._seed = workload.seed
        self._once = once
        self._next = 0

    def __iter__(self) -> _Windows:
        return self

    def __next__(self) -> tuple[Any, Any, Any]:
        first, self._next = self._next, self._next + self._batch_size
        if self._once and self._next > len(self._sample_indices):
            raise StopIteration
        crops = []
        for position in range(first, self._next):
            cycle, place = divmod(position, len(self._sample_indices))
            sample_index = self._sample_indices[place]
            width, height = self._sizes[sample_index % len(self._sizes)]
            crops.append(draw_crop(self._seed, sample_index + cycle * len(self._sample_indices), height, width))
        return windows_of(crops)
