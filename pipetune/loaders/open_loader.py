"""Opens a backend by its name: from a candidate to the loader that makes its batches."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from pipetune import registry
from pipetune.datasets.index import ImageSet
from pipetune.decoders.contract import FillFunction, LoadFunction, Trial
from pipetune.decoders.layout import layout_of
from pipetune.loaders.contract import Batch, Loader
from pipetune.loaders.order import EndlessOrder, EpochByEpoch, Order
from pipetune.loaders.photos import Photos, trial_of
from pipetune.loaders.threads import Make, ThreadLoader, batch_maker
from pipetune.loaders.torch_processes import plain_loader, ring_loader
from pipetune.records.sweep import Candidate, Workload


def open_decoding(
    candidate: Candidate,
    workload: Workload,
    images: ImageSet,
    load: LoadFunction,
    fill_some: FillFunction | None = None,
) -> Loader:
    """The endless loader over ``images`` that is to be measured."""
    photos = Photos(images, load, layout_of(candidate, workload.image_size), workload.seed, fill_some)
    once = workload.cache == "cold"  # the second epoch would find the files in memory
    order: Order = EndlessOrder(len(photos), candidate.batch_size, workload.seed, 1 if once else None)
    repeat = bool(candidate.num_workers and not candidate.persistent_workers and not once)
    if repeat:
        order = EpochByEpoch(len(photos), candidate.batch_size, workload.seed)
    on_gpu = workload.accelerator.kind == "cuda"
    return open_batches(photos, candidate, order, workload.image_size, repeat=repeat, own_process=True, on_gpu=on_gpu)


def open_batches(
    photos: Photos,
    candidate: Candidate,
    order: Order,
    image_size: int,
    *,
    repeat: bool,
    own_process: bool,
    on_gpu: bool,
) -> Loader:
    """The loader for these batches.

    Args:
        order: which they are.
        repeat: ``order`` is iterated again when it has come to its end.
        own_process: see :class:`pipetune.loaders.torch_processes.TorchLoader`.
        on_gpu: the batches go to a CUDA device.
    """
    layout = layout_of(candidate, image_size)
    if candidate.worker_kind == "process" and not candidate.reuse_buffers:
        return plain_loader(photos, candidate, order, layout, repeat=repeat, own_process=own_process)
    if candidate.worker_kind == "process" and candidate.num_workers:
        return ring_loader(
            photos, candidate, order, layout, repeat=repeat, own_process=own_process, on_gpu=on_gpu
        )  # fmt: skip
    make = batch_maker(
        photos, layout, candidate.batch_size, pinned=candidate.pin_memory and on_gpu,
        ahead=candidate.num_workers * candidate.prefetch_depth,
    )  # fmt: skip
    if candidate.num_workers:
        return ThreadLoader(
            order, make, workers=candidate.num_workers, depth=candidate.prefetch_depth, in_order=candidate.in_order
        )
    return InlineLoader(order, make)


class InlineLoader:
    """The training process makes each batch itself when it asks for it. See :class:`contract.Loader`."""

    def __init__(self, order: Order, make: Make) -> None:
        self._order = order
        self._make = make
        self._open = True

    def __iter__(self) -> Iterator[Batch]:
        if not self._open:
            raise ValueError("this loader is closed")
        for tickets in self._order:
            if not self._open:
                return
            yield self._make(tickets, lambda: False)

    def close(self) -> None:
        """Nothing runs."""
        self._open = False


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """The endless loader over ``images`` that is to be measured.

    Raises:
        PipetuneError: what the backend needs is not there.
    """
    module = backend_module(candidate.backend)
    if not hasattr(module, "load"):
        loader: Loader = module.open_loader(candidate, workload, images)
        return loader
    return open_decoding(candidate, workload, images, module.load, getattr(module, "fill_some", None))


def open_trial(backend: str, workload: Workload) -> Trial:
    """Tries one image after the other; raises as :func:`open_loader` does."""
    module = backend_module(backend)
    if not hasattr(module, "load"):
        trial: Trial = module.open_trial(workload)
        return trial
    return trial_of(module.load)


def backend_module(backend: str) -> Any:
    """The backend's module; what it needs is there, or it raises as :func:`open_loader` does."""
    module = importlib.import_module(registry.find_backend(backend).module)
    if hasattr(module, "require"):
        module.require()  # before any worker is started
    return module
