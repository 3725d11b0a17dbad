"""The loader ``dali``: NVIDIA DALI's reader, decoder, resize and normalisation in one C++ pipeline with own threads.

On a CUDA workload the decoder is DALI's ``mixed`` one (CPU and GPU, with the hardware JPEG engine where there is one)
and the rest runs on the GPU; otherwise, and always as backend ``dali-cpu``, everything runs on the CPU
(``device_id=None``). Only the window is decoded, as far as the format allows (``image_slice``), which is how DALI does
this transform; with ``decode_region=whole`` the whole image, of which the GPU then takes the window.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.decoders.contract import Trial, bad_image, is_shortage
from pipetune.decoders.crop import Crops
from pipetune.decoders.layout import Layout, layout_of
from pipetune.loaders.contract import Batch, Loader
from pipetune.loaders.dali_names import DaliNames, read_for_dali
from pipetune.loaders.hand_over import handed_over
from pipetune.loaders.order import EndlessOrder, Order
from pipetune.loaders.windows import WindowedOrder
from pipetune.records.imagenet import MEAN, STD
from pipetune.records.sweep import Candidate, Workload
from pipetune.registry import find_backend

#: Length of the file list that DALI's reader cycles through; whole epochs, at least this many samples.
_LIST_SAMPLES = 100_000
#: Number of batches that DALI asks for beyond those of its queue.
AHEAD = 4
#: How DALI names a file that it cannot decode, within a longer text; and the reason that is reported instead.
_BAD_SAMPLE = re.compile(r"Failed to decode sample #\d+ : (.*)")
_CANNOT_READ = "DALI cannot read this file"


#: ``explain(error, delivered)``: the error with the name of the image, if one is at fault, after so many batches.
Explain = Callable[[RuntimeError, int], Exception]


class _DaliLoader:
    def __init__(
        self, pipeline: Any, names: DaliNames, layout: Layout, device_index: int | None, explain: Explain
    ) -> None:
        self._pipeline: Any = pipeline
        self._names = names
        self._explain = explain
        self._layout = layout
        self._device_index = device_index

    def __iter__(self) -> Iterator[Batch]:
        return handed_over(self._batches(), self._device_index)

    def _batches(self) -> Iterator[Batch]:
        # Otherwise the constructor waits for the first batch, which would count as construction.
        iterator = DALIGenericIterator([self._pipeline], ["images", "labels"], size=-1, prepare_first_batch=False)
        delivered = 0
        while self._pipeline is not None:
            try:
                (output,) = next(iterator)
            except StopIteration:
                return
            except RuntimeError as error:
                found = _BAD_SAMPLE.search(str(error))
                raise (
                    bad_image(self._names.path(found[1]), _CANNOT_READ) if found else self._explain(error, delivered)
                ) from error
            delivered += 1
            yield batch_of(output, self._layout)

    def close(self) -> None:
        self._pipeline = None
        self._names.close()


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """See :mod:`pipetune.loaders.contract`. ``num_workers`` are DALI's threads, ``prefetch_depth`` its queue depth."""
    device_index = workload.accelerator.cuda_index
    decodes_on = decoding_device(candidate, device_index)
    layout = layout_of(candidate, workload.image_size)
    pipeline = Pipeline(
        batch_size=candidate.batch_size,
        num_threads=candidate.num_workers,
        device_id=decodes_on,
        prefetch_queue_depth=candidate.prefetch_depth,
        exec_dynamic=True,
        seed=workload.seed,
    )
    order = EndlessOrder(len(images.images), candidate.batch_size, workload.seed)
    epochs = 1 if workload.cache == "cold" else -(-_LIST_SAMPLES // len(images.images))
    sample_indices = [sample_index for epoch in range(epochs) for sample_index in order.epoch(epoch)]
    listed = [images.images[sample_index % len(images.images)] for sample_index in sample_indices]
    names = DaliNames()
    with pipeline:
        encoded, labels = fn.readers.file(
            files=[names.name(image) for image in listed],
            labels=[image.label for image in listed],
            random_shuffle=False,
        )
        listed_batches = _listed_batches(sample_indices, candidate.batch_size, once=workload.cache == "cold")
        sizes = np.array([image.upright_size for image in images.images], np.int32)
        windows = (windows_of(crops) for _, crops in WindowedOrder(listed_batches, sizes, workload.seed))
        anchor, shape, mirror = fn.external_source(source=windows, num_outputs=3, batch=True)
        decoded = decode(encoded, anchor, shape, mirror, candidate, layout, on_gpu=decodes_on is not None)
        pipeline.set_outputs(decoded, labels)
    pipeline.build()

    def explain(error: RuntimeError, delivered: int) -> Exception:
        first = delivered * candidate.batch_size
        places = range(first, first + (candidate.prefetch_depth + AHEAD) * candidate.batch_size)
        return name_bad_image(error, (listed[place % len(listed)] for place in places), decodes_on)

    return _DaliLoader(pipeline, names, layout, device_index, explain)


def open_training(
    candidate: Candidate, images: ImageSet, order: Order, *, image_size: int, seed: int, device_index: int | None,
) -> Loader:  # fmt: skip
    """See :mod:`pipetune.loaders.contract`."""
    from pipetune.loaders.dali_training import DaliTrainingLoader

    return DaliTrainingLoader(candidate, images, order, image_size=image_size, seed=seed, device_index=device_index)


def decoding_device(candidate: Candidate, device_index: int | None) -> int | None:
    """The CUDA device that decodes, of that to which the batches go; ``None``: the CPU does."""
    return device_index if find_backend(candidate.backend).decodes_on_cuda else None


def batch_of(output: dict[str, torch.Tensor], layout: Layout) -> Batch:
    """The batch that DALI has made, taken out of its dictionary, which a generator may keep."""
    return Batch(layout.images(output.pop("images")), output.pop("labels").view(-1).to(torch.int64))


def decode(
    encoded: Any, anchor: Any, shape: Any, mirror: Any, candidate: Candidate, layout: Layout, *, on_gpu: bool
) -> Any:
    """The part of a pipeline that makes images of files: decode, crop, resize (antialiased), mirror, normalise.

    Args:
        anchor: top and left of the window (px), and ``shape``: its height and width.
        mirror: 1 where it is to be flipped.
        layout: of the batch.
    """
    engine: dict[str, Any] = {}
    if on_gpu and candidate.hw_decoder_load is not None:
        engine["hw_decoder_load"] = candidate.hw_decoder_load
    decoder: dict[str, Any] = {"device": "mixed" if on_gpu else "cpu", "output_type": types.RGB, **engine}
    window: dict[str, Any] = {"axis_names": "HW", "normalized_anchor": False, "normalized_shape": False}
    if candidate.decode_region == "whole":
        decoded = fn.slice(fn.decoders.image(encoded, **decoder), anchor, shape, **window)
    else:
        decoded = fn.decoders.image_slice(encoded, anchor, shape, **window, **decoder)
    resized = fn.resize(decoded, size=(layout.size, layout.size), interp_type=types.INTERP_LINEAR, antialias=True)
    scaling: dict[str, Any] = {}
    if not layout.uint8:
        scaling = {"mean": [255 * value for value in MEAN], "std": [255 * value for value in STD]}
    return fn.crop_mirror_normalize(
        resized, mirror=mirror, dtype=types.UINT8 if layout.uint8 else types.FLOAT,
        output_layout="HWC" if layout.channels_last else "CHW", **scaling,
    )  # fmt: skip


def windows_of(crops: Crops) -> tuple[Any, Any, Any]:
    """Anchor, shape and mirror of a batch's windows, as DALI's operators take them."""
    anchor = np.ascontiguousarray(crops[:, :2], np.float32)
    shape = np.ascontiguousarray(crops[:, 2:4], np.float32)
    return anchor, shape, np.ascontiguousarray(crops[:, 4:], np.int32)


def failed_to_decode(error: RuntimeError) -> bool:
    """Whether DALI's error says that an image does not decode, or that nvImageCodec cannot parse one."""
    return any(words in str(error) for words in ("Failed to decode", "nvImageCodec failure"))


def name_bad_image(error: RuntimeError, images: Iterable[ImageFile], device_index: int | None) -> Exception:
    """The error with the name of the first of these images that does not decode, where DALI's text leaves it out."""
    if not failed_to_decode(error):
        return error
    try_decode = trial_on(device_index)
    reasons = ((image.path, try_decode(image)) for image in images)
    return next((bad_image(path, reason) for path, reason in reasons if reason is not None), error)


def open_trial(candidate: Candidate, workload: Workload) -> Trial:
    """See :mod:`pipetune.loaders.contract`."""
    return trial_on(decoding_device(candidate, workload.accelerator.cuda_index))


def trial_on(device_index: int | None) -> Trial:
    """A trial with the decoder of a CUDA device, or of the CPU. After a bad image the pipeline is made anew."""
    pipeline: Any = None

    def try_decode(image: ImageFile) -> str | None:
        nonlocal pipeline
        pipeline = pipeline or _trial_pipeline(device_index)
        try:
            pipeline.feed_input("encoded", [np.array(np.frombuffer(read_for_dali(image), np.uint8))])
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


def _listed_batches(sample_indices: list[int], batch_size: int, *, once: bool) -> Iterator[Any]:
    """The samples of each batch, in step with the reader, which cycles through a list: the n-th file gets the window
    of the n-th index, and other ones in each cycle."""
    listed = np.array(sample_indices, np.int64)
    for first in itertools.count(0, batch_size):
        if once and first + batch_size > len(listed):
            return
        cycle, place = np.divmod(np.arange(first, first + batch_size), len(listed))
        yield listed[place] + cycle * len(listed)
