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

import importlib
from collections.abc import Iterator
from typing import Any, cast

import torch

from pipetune import registry
from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.decoders.contract import DeviceDecode, DeviceDecoder, Trial
from pipetune.decoders.layout import Layout, layout_of
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


def open_batches(
    photos: Photos, candidate: Candidate, order: Order, layout: Layout, *, repeat: bool, own_process: bool,
    device_index: int | None,
) -> DeviceLoader:  # fmt: skip
    """See :mod:`pipetune.loaders.contract`. Threads outlive the end of an epoch, so nothing is repeated."""
    device = _device_at(device_index)
    make = BatchMaker(photos, _open_decoder(candidate, device), layout, device)
    threads = ThreadLoader(
        WindowedOrder(order, photos.sizes, photos.seed), make, workers=candidate.num_workers,
        ahead=candidate.num_workers + candidate.prefetch_depth, in_order=candidate.in_order,
    )  # fmt: skip
    return DeviceLoader(threads, device_index)


def open_trial(candidate: Candidate, workload: Workload) -> Trial:
    """Tries one image after the other with the candidate's decoder; see :mod:`pipetune.loaders.contract`."""
    device = _device_at(workload.accelerator.cuda_index)
    decode, load = _open_decoder(candidate, device), _import_decoder(candidate).load
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


def _open_decoder(candidate: Candidate, device: torch.device) -> DeviceDecode:
    return _import_decoder(candidate).open_device_decoder(candidate, device)


def _import_decoder(candidate: Candidate) -> DeviceDecoder:
    module: Any = importlib.import_module(str(registry.find_backend(candidate.backend).module))
    return cast(DeviceDecoder, module)
