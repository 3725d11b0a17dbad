"""``pipetune.open_loader``: opens the loader that a sweep recommends, to train with it."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetune.augmentation.recipes import BASIC, DEVICE, WORKER
from pipetune.candidates import allocators
from pipetune.candidates.fit import LACKS_SHARED_MEMORY, obstacle
from pipetune.candidates.settings import SETTINGS, augments
from pipetune.candidates.space import canonical
from pipetune.datasets.index import ImageSet
from pipetune.datasets.open_dataset import open_dataset
from pipetune.errors import MissingPackageError, PipetuneError, UsageError
from pipetune.machine.host import describe_host, usable_cores
from pipetune.records.sweep import Candidate
from pipetune.registry import (
    THREADS,
    Backend,
    find_backend,
    installed_version,
    loader_for,
    loaders_of,
    min_workers,
    why_missing,
    without_cuda,
)
from pipetune.runs.run import Run
from pipetune.training.choice import choose_candidate, choose_recipe
from pipetune.training.left_out import find_undecodable, leave_out_images, warn_of_data
from pipetune.training.loader import ARRAYS, TORCH, TrainingLoader
from pipetune.training.ranks import agree, place_of

if TYPE_CHECKING:
    import torch

_DEFAULT_IMAGE_SIZE = 224
_MOST_SEED = 2**32 - 1
#: A limit that no data set reaches: all images are used.
_NO_LIMIT = 2**62


def open_loader(
    choice: Candidate | Run | str | Path,
    dataset: str | Path | None = None,
    *,
    image_size: int | None = None,
    batch_size: int | None = None,
    num_workers: int | None = None,
    transfer: str | None = None,
    loader: str | None = None,
    reuse_buffers: bool | None = None,
    persistent_workers: bool | None = None,
    augment: str | None = None,
    transforms_on: str | None = None,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = True,
    leave_out: Collection[str | Path] = (),
    skip_empty_classes: bool = False,
    rank: int | None = None,
    world_size: int | None = None,
    device: str | torch.device | None = None,
    arrays: str = TORCH,
) -> TrainingLoader:
    """Open the recommended loader to train with::

        run = pipetune.sweep("/data/imagenet/train")
        with pipetune.open_loader(run) as loader:
            for epoch in range(90):
                for images, labels in loader:
                    images, labels = images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)
                    images, labels = loader.to_training(images, labels)
                    ...

    It is the loader that was measured: the same decoder, kind and number of workers and settings, except those that an
    argument changes. Each image is decoded, cropped (random resized crop), resized, mirrored and augmented as it was
    then; what is left to the device ``loader.to_training`` does there. What differs is the order: here an epoch has an
    end, and DALI is given the files of each batch instead of a list. Labels are the numbers of the top-level folders in
    the order of their names, as with ``ImageFolder``. DALI decodes on the GPU if it did when it was measured, and on
    the CPU after a sweep with an emulated accelerator; ``dali-cpu`` always does, and ``nvjpeg`` and ``nvimagecodec``
    never. Batches that go to a CUDA device lie there, or are in page-locked memory, also where the sweep emulated one;
    when that is used again is said at :class:`pipetune.training.loader.TrainingLoader`.

    Where ``torch.distributed`` is initialised, the ranks compare here what they have found, so all of them must call
    it; ``rank`` and ``world_size`` say that this one does it alone.

    Args:
        choice: a sweep's ``Run`` or its folder, whose recommended candidate is meant; or any ``Candidate``.
        dataset: folder of images, or ``synthetic:…``; the sweep's own unless given. All of its images are used.
        image_size: edge of the training crop (px); the sweep's own unless given, 224 with a ``Candidate``.
        batch_size: samples per batch and rank, if another number than measured.
        num_workers: loader workers, if another number than measured.
        transfer: ``float32`` or ``uint8``, if not as measured.
        loader: ``torch`` (processes) or ``threads``, if not as measured.
        reuse_buffers: decode into memory that is used again, if not as measured. Threads always do.
        persistent_workers: keep loader processes from epoch to epoch, if not as measured.
        augment: what is done to each image (``randaugment``, say); the sweep's own unless given, ``basic`` with a
            ``Candidate``.
        transforms_on: ``worker`` or ``device``: where it is done, if not as measured.
        seed: of the shuffles, crops and augmentations, from 0 to 2**32 - 1; the same on all ranks.
        shuffle: draw a new order for each epoch; ``False``: the order of the paths.
        drop_last: leave out images that do not fill a batch on every rank. Otherwise the last batch is smaller, and
            where the images do not divide evenly some are used twice, so that all ranks have the same number.
        leave_out: paths of images that are not used; those that did not decode in a ``Run`` are left out anyway.
        skip_empty_classes: leave out class folders without images, so that the classes behind them have lower numbers
            than with ``ImageFolder``. Otherwise such a folder is an error.
        rank: number of this process, and ``world_size``: number of processes; by default those of
            ``torch.distributed`` or of ``jax.distributed``, or those that ``torchrun`` has set.
        device: where the batches will be used, e.g. ``cuda:1``; by default the current CUDA device where there is one.
        arrays: ``numpy``: batches are numpy arrays, ``images`` ``[B, S, S, 3]``, for JAX say; torch need not be
            installed. Workers are threads of this process then, whatever was measured.

    Raises:
        UsageError: the choice, the data set or an argument cannot be used; a folder in it cannot be listed, or a class
            folder has no images, so that classes would have other numbers than with ``ImageFolder``.
        MissingPackageError: a package that the backend needs is not installed.
        PipetuneError: the machine has too little memory for it; or another rank of ``torch.distributed`` has failed or
            sees other images.

    Warns:
        UserWarning: files are left out, because they are damaged, say; their number and the first names are given.
    """
    failure: Exception | None = None
    images: ImageSet | None = None
    undecodable: list[str] = []
    # Whatever fails on one rank has to reach the others, which wait for it in `agree`.
    try:
        candidate, known = choose_candidate(choice)
        device_index = None
        if arrays == TORCH:
            device_index = _cuda_index(device)
        else:
            candidate = _in_threads(
                candidate, arrays, num_workers=num_workers, loader=loader, device=device, transforms_on=transforms_on
            )
        candidate = _changed(
            candidate, on_gpu=device_index is not None, batch_size=batch_size, num_workers=num_workers,
            transfer=transfer, loader=loader, reuse_buffers=reuse_buffers, persistent_workers=persistent_workers,
            transforms_on=transforms_on,
        )  # fmt: skip
        augment = choose_recipe(augment, known)
        if augment != BASIC and transforms_on == WORKER and not augments(candidate):
            raise UsageError(
                f"transforms_on {WORKER!r}: {candidate.backend} makes whole batches, and cannot augment their images",
                hint=f"use transforms_on={DEVICE!r}, or choose another decoder",
            )
        seed = _whole("seed", seed, 0, _MOST_SEED)
        size = image_size if image_size is not None else known.get("image_size") or _DEFAULT_IMAGE_SIZE
        size = _whole("image_size", size, 1)
        dataset = dataset if dataset is not None else known.get("dataset")
        if dataset is None:
            raise UsageError("no data set was named", hint="name the data set: open_loader(candidate, 'DIR')")
        backend = find_backend(candidate.backend)
        if backend.decodes_on_cuda and device_index is None and (reason := without_cuda(backend)) is not None:
            raise UsageError(
                f"{backend.name} cannot be used: {reason}", hint="choose another decoder, or device='cuda'"
            )
        if installed_version(backend) is None:
            raise MissingPackageError(f"{backend.name} {why_missing(backend)}", hint=f"run: {backend.install}")
        _check_room(candidate, size)
        images = open_dataset(
            os.fspath(dataset), seed=seed, limit_images=_NO_LIMIT, limit_bytes=_NO_LIMIT,
            workers=round(usable_cores()) or 1, strict=True, skip_empty_classes=skip_empty_classes,
        )  # fmt: skip
        undecodable = find_undecodable(known, images)
        images = leave_out_images(images, [*leave_out, *undecodable])
    except Exception as error:
        failure = error
    if rank is None and world_size is None:
        agree(images, failure)
    if failure is not None:
        raise failure
    assert images is not None
    assert augment is not None
    rank, world_size = place_of(rank, world_size)
    warn_of_data(images, undecodable)
    _warn_of_allocator(candidate)
    return TrainingLoader(
        candidate, images, image_size=size, seed=seed,
        shuffle=shuffle, drop_last=drop_last, rank=rank, world_size=world_size, device_index=device_index,
        arrays=arrays, augment=augment,
    )  # fmt: skip


def _whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """An argument as an integer of Python's own, which one of numpy's is not.

    Raises:
        UsageError: it is none, or out of range.
    """
    allowed = f"use at least {least}" if most is None else f"use {least} to {most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} {value!r} is not a whole number", hint=allowed) from None
    if number < least or (most is not None and number > most):
        raise UsageError(f"{name} {number} is out of range", hint=allowed)
    return number


def _cuda_index(device: str | torch.device | None) -> int | None:
    """The CUDA device that the batches go to, as torch counts them; ``None``: they go to none.

    Raises:
        MissingPackageError: torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError(
            "torch, of which batches are made, is not installed",
            hint="pip install 'pipetune[torch]', or open_loader(…, arrays='numpy')",
        ) from error

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    chosen = torch.device(device or ("cuda" if count else "cpu"))
    if chosen.type != "cuda":
        return None
    index = chosen.index or 0
    if index >= count:
        seen = f"{count} CUDA device{'s' * (count != 1)}"
        raise UsageError(f"no '{chosen}': torch sees {seen}", hint="use another device, or device='cpu'")
    return torch.cuda.current_device() if chosen.index is None else index


def _in_threads(
    measured: Candidate, arrays: str, *, num_workers: int | None, loader: str | None,
    device: str | torch.device | None, transforms_on: str | None,
) -> Candidate:  # fmt: skip
    """The candidate with what numpy arrays take: workers that are threads, and that augment the images themselves.

    Raises:
        UsageError: it cannot decode in threads, or what was asked for needs torch.
    """
    if arrays not in ARRAYS:
        raise UsageError(f"unknown arrays {arrays!r}", hint=f"choose {' or '.join(ARRAYS)}")
    if device is not None:
        raise UsageError(f"device {str(device)!r} is for batches of torch", hint="jax.device_put moves numpy arrays")
    if transforms_on == DEVICE:
        raise UsageError(
            f"transforms_on {DEVICE!r} is for batches of torch", hint="omit it: the workers augment numpy arrays"
        )
    if loader not in (None, THREADS):
        raise UsageError(f"loader {loader!r} makes batches of torch", hint=f"use loader={THREADS!r}, or omit it")
    backend = find_backend(measured.backend)
    if loader_for(measured).has_decoder or backend.decodes_on_cuda:
        raise UsageError(f"{backend.name} makes no numpy arrays", hint="choose jpeg-roi, opencv or pillow")
    if not backend.releases_gil:
        if not (measured.num_workers if num_workers is None else num_workers):
            return replace(measured, transforms_on=WORKER)
        raise UsageError(
            f"{backend.name} cannot decode in threads, which numpy arrays need",
            hint="choose jpeg-roi or opencv, or num_workers=0",
        )
    return replace(measured, loader=THREADS, transforms_on=WORKER)


def _changed(measured: Candidate, *, on_gpu: bool, **changes: Any) -> Candidate:
    """The candidate with the values that are not ``None``, checked, and without settings that have no effect."""
    candidate = replace(measured, **{name: value for name, value in changes.items() if value is not None})
    candidate = replace(
        candidate, batch_size=_whole("batch_size", candidate.batch_size, 1),
        num_workers=_whole("num_workers", candidate.num_workers, 0),
    )  # fmt: skip
    for name in ("transfer", "loader", "transforms_on"):
        values = SETTINGS[name].values
        if changes[name] is not None and changes[name] not in values:
            raise UsageError(f"unknown {name} {changes[name]!r}", hint=f"choose {' or '.join(values)}")
    backend = find_backend(candidate.backend)
    if changes["loader"] is not None and candidate.num_workers and not _may_be_loaded_by(changes["loader"], backend):
        raise UsageError(
            f"{backend.name} has no loader {changes['loader']!r}", hint="omit it, or choose another decoder"
        )
    fewest = min_workers(backend)
    if candidate.num_workers < fewest:
        raise UsageError(f"{candidate.backend} has no configuration without workers", hint=f"use num_workers={fewest}")
    depth = max(1, candidate.prefetch_depth or 2) if candidate.num_workers else 0
    # Threads decode in place; without them the training process does so too.
    in_place = measured.loader == THREADS and not candidate.num_workers and changes["reuse_buffers"] is None
    found = canonical(
        replace(
            candidate, prefetch_depth=depth, pin_memory=on_gpu,  # also where it was measured with an emulated one
            reuse_buffers=in_place or candidate.reuse_buffers,
        )
    )  # fmt: skip
    return found if augments(found) else replace(found, transforms_on=DEVICE)


def _may_be_loaded_by(loader: str, backend: Backend) -> bool:
    return any(one.name == loader for one in loaders_of(backend))


def _check_room(candidate: Candidate, image_size: int) -> None:
    """Raise an error that says what is missing, before the loader is ended by a signal that does not."""
    lacking = obstacle(candidate, image_size, describe_host(), runs_here=True)
    if lacking is not None:
        shared = ""
        if lacking.kind == LACKS_SHARED_MEMORY:
            instead = _may_be_loaded_by(THREADS, find_backend(candidate.backend))
            shared = " (docker run --shm-size)" + (f", or loader={THREADS!r}" if instead else "")
        raise PipetuneError(
            f"this loader {lacking.message}", hint=f"lower num_workers or batch_size, or give it more{shared}"
        )


def _warn_of_allocator(candidate: Candidate) -> None:
    """Warn if this process lacks the candidate's allocator, which can only be chosen before a program starts."""
    if candidate.allocator != allocators.DEFAULT and not allocators.set_here(candidate.allocator, os.environ):
        lines = "; ".join(allocators.lines_before(candidate.allocator))
        warnings.warn(
            f"measured with the allocator {candidate.allocator}, which this process does not have; run first: {lines}",
            stacklevel=3,
        )
