"""The loader ``device``: threads read files, and a decoder on the CUDA device makes batches of them there.

Each thread makes whole batches: it reads the files, hands them to the decoder as one list, and queues crop, resize and
normalisation (:mod:`pipetune.loaders.device_batch`). A batch is complete before the training loop gets it, which keeps
it as a batch of DALI's (:mod:`pipetune.loaders.hand_over`). ``prefetch_depth`` is the number of batches that are kept
ready on the device, beside the one that each thread is making.

The decoder is any that offers :class:`pipetune.decoders.contract.DeviceDecoder`. Without a CUDA device it decodes on
the CPU, by the same code; that is for tests, and no candidate of a sweep.

Why not one thread that decodes and others that read: resizing one batch would wait for reading or decoding another.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from PIL import Image

from pipetune import registry
from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.decoders.contract import DeviceDecode, DeviceDecoder, Encoded, StoredWindow, Trial
from pipetune.decoders.layout import Layout, layout_of
from pipetune.errors import PipetuneError
from pipetune.loaders.contract import Batch
from pipetune.loaders.device_batch import BatchMaker
from pipetune.loaders.hand_over import handed_over
from pipetune.loaders.order import Order
from pipetune.loaders.photos import Photos
from pipetune.loaders.threads import ThreadLoader
from pipetune.loaders.windows import WindowedOrder
from pipetune.records.sweep import Candidate, Workload

#: Edge to which an image is resized to see whether it decodes (px).
_TRIAL_PX = 8
#: Edge of the image that a decoder has to decode before it is used (px).
_CHECK_PX = 32


def open_batches(
    photos: Photos,
    candidate: Candidate,
    order: Order,
    layout: Layout,
    *,
    repeat: bool,
    own_process: bool,
    device_index: int | None,
) -> DeviceLoader:
    """See :mod:`pipetune.loaders.contract`. Threads outlive the end of an epoch, so nothing is repeated."""
    device = _device_at(device_index)
    make = BatchMaker(photos, open_decoder(candidate, device), layout, device)
    threads = ThreadLoader(
        WindowedOrder(order, photos.sizes, photos.seed),
        make,
        workers=candidate.num_workers,
        ahead=candidate.num_workers + candidate.prefetch_depth,
        in_order=candidate.in_order,
    )
    return DeviceLoader(threads, device_index)


def open_trial(candidate: Candidate, workload: Workload) -> Trial:
    """Tries one image after the other with the candidate's decoder; see :mod:`pipetune.loaders.contract`."""
    device = _device_at(workload.accelerator.cuda_index)
    decode, load = open_decoder(candidate, device), _import_decoder(candidate).load
    layout = layout_of(candidate, _TRIAL_PX)

    def try_decode(image: ImageFile) -> str | None:
        photos = Photos(ImageSet(name="", root="", classes=(), images=(image,), found_images=1), load, layout, 0)
        return BatchMaker(photos, decode, layout, device).try_sample(0)

    return try_decode


class DeviceLoader:
    """A loader of batches on a device (see :class:`pipetune.loaders.contract.Loader`)."""

    def __init__(self, threads: ThreadLoader, device_index: int | None) -> None:
        self._threads = threads
        self._device_index = device_index

    def __iter__(self) -> Iterator[Batch]:
        return handed_over(iter(self._threads), self._device_index)

    def close(self) -> None:
        """End the threads and drop what they have made."""
        self._threads.close()


def _device_at(device_index: int | None) -> torch.device:
    return torch.device("cpu") if device_index is None else torch.device("cuda", device_index)


def open_decoder(candidate: Candidate, device: torch.device) -> DeviceDecode:
    """The candidate's decoder, which has decoded a first image: one that can decode none would leave all to the CPU.

    Raises:
        PipetuneError: it decodes none on this device.
    """
    decode = _import_decoder(candidate).open_device_decoder(candidate, device)
    file = io.BytesIO()
    Image.new("RGB", (_CHECK_PX, _CHECK_PX)).save(file, "JPEG")
    data = np.frombuffer(bytearray(file.getvalue()), np.uint8)
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    with torch.cuda.device(device) if stream is not None else contextlib.nullcontext(), torch.cuda.stream(stream):
        (window,) = decode([Encoded(data, _CHECK_PX, _CHECK_PX, StoredWindow(0, 0, _CHECK_PX, _CHECK_PX))])
        if stream is not None:
            stream.synchronize()
    if window is None:
        backend = registry.find_backend(candidate.backend)
        raise PipetuneError(f"{backend.name} decodes no JPEG on {device}", hint=f"install it anew: {backend.install}")
    return decode


def _import_decoder(candidate: Candidate) -> DeviceDecoder:
    module: Any = importlib.import_module(str(registry.find_backend(candidate.backend).module))
    return cast(DeviceDecoder, module)
