"""Opens a candidate's loader: its module, and its decoder's, are found in the registry and imported here."""

from __future__ import annotations

import importlib
from typing import Any, cast

from pipetune import registry
from pipetune.augmentation.recipes import loaders_recipe
from pipetune.datasets.index import ImageSet
from pipetune.decoders.contract import FillFunction, LoadFunction, Trial
from pipetune.decoders.layout import Layout, layout_of
from pipetune.loaders.contract import Loader
from pipetune.loaders.order import EndlessOrder, EpochByEpoch, Order
from pipetune.loaders.photos import Photos
from pipetune.loaders.trial import trial_of
from pipetune.records.sweep import Candidate, Workload


def open_loader(
    candidate: Candidate, workload: Workload, images: ImageSet, stages: tuple[str, ...] = ()
) -> Loader:  # fmt: skip
    """The endless loader over ``images`` that is to be measured.

    Args:
        stages: what it does of :data:`pipetune.records.explanation.STAGES`; ``()``: all.

    Raises:
        PipetuneError: something that the backend needs is missing.
    """
    loader, module = registry.loader_for(candidate), import_for(candidate)
    if stages and loader.name == registry.USER:
        return cast(Loader, module.open_partial(candidate, workload, stages))
    if stages:
        from pipetune.loaders.partial import open_partial

        return open_partial(candidate, workload, images, module, stages)
    if loader.has_decoder:
        opened: Loader = module.open_loader(candidate, workload, images)
        return opened
    return open_decoding(candidate, workload, images, module.load, getattr(module, "fill_some", None))


def open_decoding(
    candidate: Candidate,
    workload: Workload,
    images: ImageSet,
    load: LoadFunction,
    fill_some: FillFunction | None = None,
) -> Loader:
    """The endless loader over ``images`` that is to be measured, with the functions of a decoder."""
    layout = layout_of(candidate, workload.image_size)
    augment = loaders_recipe(candidate, workload.augment)
    return open_endless(candidate, workload, Photos(images, load, layout, workload.seed, fill_some, augment=augment))


def order_of(candidate: Candidate, workload: Workload, n_images: int) -> tuple[Order, bool]:
    """The batches that are to be measured, and whether they are iterated again when they have come to their end."""
    once = workload.cache == "cold"  # the second epoch would find the files in memory
    if candidate.num_workers and not candidate.persistent_workers and not once:
        return EpochByEpoch(n_images, candidate.batch_size, workload.seed), True
    return EndlessOrder(n_images, candidate.batch_size, workload.seed, 1 if once else None), False


def open_endless(candidate: Candidate, workload: Workload, photos: Photos) -> Loader:
    """The candidate's loader over the images that ``photos`` decode, one epoch after the other."""
    order, repeat = order_of(candidate, workload, len(photos))
    return open_batches(
        photos, candidate, order, workload.image_size, repeat=repeat, own_process=True,
        device_index=workload.accelerator.cuda_index,
    )  # fmt: skip


def open_batches(
    photos: Photos,
    candidate: Candidate,
    order: Order,
    image_size: int,
    *,
    repeat: bool,
    own_process: bool,
    device_index: int | None,
) -> Loader:
    """The candidate's loader over these batches: the same one to be measured and to train with.

    Args:
        order: which they are.
        repeat: ``order`` is iterated again when it has come to its end.
        own_process: the process is a child of pipetune, which measures; otherwise it is the user's.
        device_index: of the CUDA device that the batches go to; ``None``: they go to none.
    """
    module = importlib.import_module(registry.loader_for(candidate).module)
    opened: Loader = module.open_batches(
        photos, candidate, order, layout_of(candidate, image_size), repeat=repeat, own_process=own_process,
        device_index=device_index,
    )  # fmt: skip
    return opened


def open_arrays(photos: Photos, candidate: Candidate, order: Order, layout: Layout) -> Loader:
    """The same in threads of this process, or in the caller's own: batches of numpy arrays, without torch.

    Args:
        layout: that of ``photos``, with channels last.
    """
    from pipetune.loaders.in_place import InlineLoader, array_maker
    from pipetune.loaders.threads import ThreadLoader

    workers, depth = candidate.num_workers, candidate.prefetch_depth
    make = array_maker(photos, layout, candidate.batch_size, ahead=workers * depth)
    if not workers:
        return InlineLoader(order, make)
    return ThreadLoader(order, make, workers=workers, ahead=workers * depth, in_order=candidate.in_order)


def open_trial(candidate: Candidate, workload: Workload) -> Trial:
    """Tries one image after the other; raises as :func:`open_loader` does."""
    loader, module = registry.loader_for(candidate), import_for(candidate)
    if not loader.has_decoder and not loader.only_named:
        return trial_of(module.load)
    trial: Trial = importlib.import_module(loader.module).open_trial(candidate, workload)
    return trial


def import_for(candidate: Candidate) -> Any:
    """The module that decodes for the candidate: its backend's, or its loader's where that has a decoder.

    Raises:
        PipetuneError: something that it needs is missing.
    """
    loader, backend = registry.loader_for(candidate), registry.find_backend(candidate.backend)
    module = importlib.import_module(loader.module if backend.module is None else backend.module)
    if hasattr(module, "require"):
        module.require()  # before any worker is started
    return module
