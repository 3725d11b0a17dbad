"""TrainingLoader: the loader that was measured, with epochs, ranks and a state to resume from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from pipetune.augmentation.recipes import BASIC, devices_recipe, loaders_recipe
from pipetune.datasets.index import ImageSet
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.layout import layout_of
from pipetune.errors import UsageError
from pipetune.loaders.contract import Batch, Loader
from pipetune.loaders.open_loader import import_for, open_arrays, open_batches
from pipetune.loaders.order import RankOrder
from pipetune.loaders.photos import Photos
from pipetune.records.imagenet import MEAN, STD
from pipetune.records.sweep import Candidate
from pipetune.registry import find_backend, loader_for

if TYPE_CHECKING:
    import torch

    from pipetune.accelerator.device_transforms import DeviceTransforms

#: What batches are made of.
TORCH, NUMPY = ARRAYS = ("torch", "numpy")
#: What a state of an earlier version lacks.
_NEW_IN_STATES = ("fingerprint", "augment")
_MEAN, _STD = (255 * np.array(values, np.float32) for values in (MEAN, STD))


class TrainingLoader:
    """Batches to train with: iterate it once per epoch. Made by :func:`pipetune.open_loader`.

    ``for images, labels in loader`` gives ``images`` ``[B, 3, S, S]`` (float32 and normalised, or uint8) and ``labels``
    int64 ``[B]``. :meth:`to_training` makes of them what a model takes, on whatever device they are, which includes
    augmenting them where the candidate leaves that to the device. Labels of images that are mixed (MixUp) are float32
    ``[B, classes]``, which ``torch.nn.CrossEntropyLoss`` takes as well. The same seed gives the
    same batches for any number and kind of workers. Each time it is iterated a new epoch begins, shuffled anew, with
    new random crops. Workers live on in between and prepare the next epoch already,
    unless those of the candidate end with each.

    With ``arrays="numpy"`` both are numpy arrays, and ``images`` are ``[B, S, S, 3]``. Workers are threads then.

    Where a batch's memory is used again, that happens when no tensor or array on it is left; one that is kept is not
    touched. Batches that go to a CUDA device are in page-locked memory, to be copied with
    ``images.to(device, non_blocking=True)``. Nothing has to wait for the copy: the memory is used again when all has
    ended that was queued on the current stream when the batch was dropped, and when the next one was asked for. Code
    that copies on another stream, as prefetchers do, has to let the current stream wait for it before it asks for the
    next batch: ``torch.cuda.current_stream().wait_stream(side)``.
    """

    def __init__(
        self, candidate: Candidate, images: ImageSet, *, image_size: int, seed: int, shuffle: bool, drop_last: bool,
        rank: int, world_size: int, device_index: int | None, arrays: str = TORCH, augment: str = BASIC,
    ) -> None:  # fmt: skip
        self.candidate = candidate
        self.augment = augment
        """What is done to each image: a name in :data:`pipetune.augmentation.recipes.RECIPES`."""
        self.classes = images.classes
        """Class names in the order of their labels."""
        self.batch_size = candidate.batch_size
        """Samples per batch of this rank."""
        self.epoch = 0
        """The epoch that was begun last; before the first one, its number."""
        kind = loader_for(candidate)
        if images.in_shards and not kind.reads_shards:
            raise UsageError(
                f"{candidate.backend} is given files, not the members of tar shards",
                hint="choose another backend, or unpack the shards",
            )
        if images.is_raw and not find_backend(candidate.backend).reads_raw:
            raise UsageError(
                f"{candidate.backend} decodes, and these images are stored as pixels",
                hint="choose jpeg-roi, or pillow; or sweep the packed data set",
            )
        self._arrays = arrays
        module = import_for(candidate)
        if kind.has_decoder and not hasattr(module, "open_training"):
            raise UsageError(f"the loader {kind.name} can be measured, but not trained with", hint="choose another one")
        layout = layout_of(candidate, image_size)
        if arrays == NUMPY:
            layout = replace(layout, channels_last=True)
        self.dataset = Photos(
            images, getattr(module, "load", _decoded_inside), layout, seed, getattr(module, "fill_some", None),
            augment=loaders_recipe(candidate, augment),
        )  # fmt: skip
        """The images of the data set; its length is their number, all ranks together."""
        self._batch = 0
        self._begun = False
        self._same = {
            "seed": seed, "images": len(images.images), "batch_size": candidate.batch_size, "world_size": world_size,
            "shuffle": shuffle, "drop_last": drop_last, "fingerprint": images.fingerprint,
            "augment": augment,
        }  # fmt: skip
        self._in_order = candidate.in_order or not candidate.num_workers
        self._order = RankOrder(
            len(images.images), candidate.batch_size, seed if shuffle else None, rank=rank, world_size=world_size,
            drop_last=drop_last,
        )  # fmt: skip
        if not len(self):
            raise UsageError(
                f"{len(images.images)} images are fewer than a batch of {candidate.batch_size} on {world_size} ranks",
                hint="lower batch_size, or set drop_last=False",
            )
        self._loader: Loader | None
        if kind.has_decoder:
            self._loader = module.open_training(
                candidate, images, self._order, image_size=image_size, seed=seed, device_index=device_index
            )  # fmt: skip
        elif arrays == NUMPY:
            self._loader = open_arrays(self.dataset, candidate, self._order, layout)
        else:
            self._loader = open_batches(
                self.dataset, candidate, self._order, image_size, repeat=False, own_process=False,
                device_index=device_index,
            )  # fmt: skip
        # Batches that come as they get ready might come an epoch too early, and some workers end with the epoch.
        self._stops = candidate.num_workers > 0 and not (candidate.in_order and candidate.persistent_workers)
        self._stream: Iterator[Batch] | None = None
        self._stream_next: tuple[int, int] | None = None
        self._seed = seed
        self._transforms: DeviceTransforms | None = None
        self._drawn = self._order.batches_from(0, 0)
        """The samples of the batches that :meth:`to_training` is asked for."""

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class name -> label, as in ``ImageFolder``."""
        return {name: label for label, name in enumerate(self.classes)}

    def __len__(self) -> int:
        """Number of batches of an epoch; the same for every rank."""
        return self._order.batches

    def __iter__(self) -> Iterator[Batch]:
        """The batches of a new epoch, or the rest of the one that :meth:`load_state_dict` was given.

        The epoch begins when its first batch is asked for: Lightning makes iterators that it never uses.
        """
        if self._loader is None:
            raise ValueError("this loader is closed")
        return self._batches_of_epoch()

    def _batches_of_epoch(self) -> Iterator[Batch]:
        if self._begun:
            self.epoch, self._batch = self.epoch + 1, 0
        self._begun = True
        self._drawn = self._order.batches_from(self.epoch, self._batch)
        yield from self._rest_of_epoch(self._stream_from(self.epoch, self._batch))

    def _stream_from(self, epoch: int, batch: int) -> Iterator[Batch]:
        if self._loader is None:
            raise ValueError("this loader is closed")
        # One that stops with its epoch serves no other, also where nobody has asked beyond its last batch.
        if self._stream is None or self._stream_next != (epoch, batch) or (self._stops and not batch):
            self._order.begin_at(epoch, batch, 1 if self._stops else None)
            self._stream = iter(self._loader)
            self._stream_next = (epoch, batch)
        return self._stream

    def _rest_of_epoch(self, stream: Iterator[Batch]) -> Iterator[Batch]:
        while self._batch < len(self):
            if self._loader is None:
                raise ValueError("this loader is closed")
            if self._stream is not stream:
                raise RuntimeError("this epoch was left when another one was begun: iterate one at a time")
            try:
                batch = next(stream, None)
            except BaseException:
                self._stream = None  # it cannot be continued
                raise
            if batch is None:
                self._stream = None
                raise RuntimeError("the loader ended before its epoch did")
            # Counted before it is handed over: a checkpoint that is saved in this step is resumed after it.
            self._batch += 1
            last = self._batch == len(self)
            self._stream_next = (self.epoch + 1, 0) if last else (self.epoch, self._batch)
            yield batch
            del batch
        if self._stops:
            next(stream, None)  # asking beyond the last batch ends the workers
            self._stream = None

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, as with ``DistributedSampler``. Not needed: it grows by itself."""
        if self._begun or epoch != self.epoch:
            self.epoch, self._batch, self._begun = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """The position as plain values: within an epoch, after the batch that was handed out last.

        Warns:
            UserWarning: within an epoch whose batches come as they get ready, which ones have come is not known.
        """
        if not self._in_order and 0 < self._batch < len(self):
            warnings.warn(
                "batches come as they get ready (in_order=False): a loop that goes on from here repeats some images "
                "and misses as many; save at the end of an epoch",
                stacklevel=2,
            )
        return {**self._same, "epoch": self.epoch, "batch": self._batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at a position: the next loop yields the rest of that epoch, or a new one where nothing is left.

        Raises:
            UsageError: the state is of a loader that yields other batches.
        """
        for name, value in self._same.items():
            if state.get(name) != value and (name in state or name not in _NEW_IN_STATES):
                raise UsageError(
                    f"the state is of a loader with {name} {state.get(name)!r}, this one has {value!r}",
                    hint="open the loader as it was when the state was saved",
                )
        self.epoch, self._batch = int(state["epoch"]), int(state["batch"])
        self._begun = self._batch >= len(self)

    def to_training(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch as a model takes it, on its own device: augmented if the device has to, and normalised.

        Call it once for each batch, in their order. Images draw what they would draw in a worker, except where batches
        come as they get ready (``in_order=False``): those of a batch then draw what others would.

        Returns:
            Images float32 ``[B, 3, S, S]``; labels int64 ``[B]``, or float32 ``[B, classes]`` of mixed images.
        """
        if self._arrays == NUMPY:
            return _normalised(images), labels
        transforms = self._on_device()
        sample_indices = next(self._drawn) if transforms.recipe != BASIC else []
        if len(sample_indices) != len(images) and sample_indices:  # another batch than the one whose turn it is
            sample_indices = list(range(sample_indices[0], sample_indices[0] + len(images)))
        return transforms(images, labels, sample_indices)

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 images as a model takes them: float32 and normalised, on their own device; others as they are.

        Of a loader of numpy arrays it takes arrays of numpy and of JAX, also in a function that JAX compiles.

        Raises:
            UsageError: these images are augmented on the device, which takes :meth:`to_training`.
        """
        if self._arrays == NUMPY:
            return _normalised(images)
        transforms = self._on_device()
        if transforms.recipe != BASIC:
            raise UsageError(
                f"{self.augment} is left to the device, and normalise() does not augment",
                hint="write images, labels = loader.to_training(images, labels)",
            )
        return transforms.normalise(images)

    def _on_device(self) -> DeviceTransforms:
        if self._transforms is None:
            from pipetune.accelerator.device_transforms import DeviceTransforms

            recipe = devices_recipe(self.candidate, self.augment)
            self._transforms = DeviceTransforms(recipe, self._seed, len(self.classes))
        return self._transforms

    def close(self) -> None:
        """End the workers. Safe to call twice."""
        self._stream = None
        if self._loader is not None:
            self._loader.close()
        self._loader = None

    def __enter__(self) -> TrainingLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _normalised(images: Any) -> Any:
    """Arrays ``[B, S, S, 3]`` of any library that computes as numpy does."""
    if images.dtype != np.uint8:
        return images
    return (images.astype(np.float32) - _MEAN) / _STD


def _decoded_inside(photo: Photo, window: Window, out: Array) -> None:
    raise UsageError("this loader decodes whole batches, and no single image", hint="iterate the loader")
