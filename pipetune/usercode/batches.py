"""Finds the images, the labels and the number of samples in a batch of any form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_IMAGE_AXES = 3
#: An array ``[n, …, …]`` with a larger ``n`` is not an image with ``n`` channels, but a batch of something else.
_MAX_CHANNELS = 4
#: Names under which a dictionary has its images and its labels, the most common first.
_IMAGES = ("image", "images", "img", "imgs", "pixel_values", "x", "input", "inputs")
_LABELS = ("label", "labels", "y", "target", "targets")


def size_of(batch: Any) -> int:
    """Number of samples in a batch: the length of its first array, at whatever depth; 1 where nothing has a length.

    A list of images of different sizes, or of samples that were not collated, as for detection models, has as many
    samples as images.
    """
    if holds_samples(batch):
        return len(batch)
    first = _first_array(batch, outermost=True)
    shape = getattr(first, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    return 1 if isinstance(first, (str, bytes)) or not hasattr(first, "__len__") else len(first)


def holds_samples(batch: Any) -> bool:
    """Whether each item of a batch is a sample: an image, an image with its target, or a dictionary with an image."""
    if not isinstance(batch, (list, tuple)) or not batch:
        return False
    first = batch[0]
    if isinstance(first, Mapping):
        return max((_axes(value) for value in first.values()), default=0) == _IMAGE_AXES
    if not isinstance(batch, list):  # a tuple of fields: images, labels
        return False
    if isinstance(first, (list, tuple)) and first:
        return _axes(first[0]) == _IMAGE_AXES and not all(_axes(item) == _IMAGE_AXES for item in first)
    return all(_axes(item) == _IMAGE_AXES and item.shape[0] <= _MAX_CHANNELS for item in batch)


def _axes(value: Any) -> int:
    return len(getattr(value, "shape", ()))


def _first_array(batch: Any, *, outermost: bool) -> Any:
    if isinstance(batch, Mapping) and batch:
        return _first_array(next(iter(batch.values())), outermost=False)
    if isinstance(batch, (list, tuple)) and batch and hasattr(batch[0], "__len__"):
        images = not outermost and len(getattr(batch[0], "shape", ())) == _IMAGE_AXES
        # Images and names of files are samples themselves.
        return batch if images or isinstance(batch[0], (str, bytes)) else _first_array(batch[0], outermost=False)
    return batch


def images_and_labels(batch: Any) -> tuple[Any, Any]:
    """The images and the labels of a batch of any form, as they are in it; ``None`` where there are no labels.

    Images are one array, or a list of arrays, one each.

    Raises:
        TypeError: there is no array in it.
    """
    labels = None
    if isinstance(batch, Mapping):
        labels = next((batch[name] for name in _LABELS if name in batch), None)
        rest = [value for name, value in batch.items() if name not in _LABELS and is_array(value)]
        images = next((batch[name] for name in _IMAGES if name in batch), rest[0] if rest else None)
    elif isinstance(batch, (list, tuple)) and batch:
        images = batch[0]
        labels = batch[1] if len(batch) > 1 else None
        if isinstance(images, Mapping):
            return images_and_labels(images)
    else:
        images = batch
    several = isinstance(images, (list, tuple)) and images and all(is_array(one) for one in images)
    if not several and not is_array(images):
        raise TypeError(f"make_loader's batches are {type(batch).__name__} without a tensor or an array in them")
    return images, labels


def is_array(value: Any) -> bool:
    """Whether it is an array with at least one axis, or a tensor with any number of them."""
    return hasattr(value, "__array__") and (getattr(value, "ndim", 0) > 0 or hasattr(value, "requires_grad"))
