"""Batches of another size, made of the samples of a batch of the script's loader, which may come several times.

What a training step takes of time and memory depends on how many samples a batch has, and hardly on which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pipetune.machine.cgroup import memory_available_bytes
from pipetune.usercode.batches import holds_samples, size_of
from pipetune.usercode.containers import with_items

#: Share of the host's available memory that a batch of all ranks may take.
_MOST_OF_HOST = 0.25


class CannotResizeError(ValueError):
    """A batch of another size cannot be made."""


class HostMemoryError(CannotResizeError):
    """It would take too much of the host's memory."""


def resized(batch: Any, size: int, ranks: int = 1) -> Any:
    """A batch of the same form with so many samples: each of them as often as it takes, in their order.

    Args:
        batch: as a collate function made it: arrays and lists of samples in containers of any depth. What is no array
            and has not as many items as the batch has samples is left as it is.
        ranks: that make such batches at the same time.

    Raises:
        CannotResizeError: its samples cannot be told apart, or are on the accelerator.
        HostMemoryError: it is too large.
    """
    own = size_of(batch)
    if own < 1:
        raise CannotResizeError("a batch without samples cannot be made larger")
    _check_memory(batch, ranks * size / own)
    made = _picked(batch, own, sorted(number % own for number in range(size)))
    if made is None or size_of(made) != size:
        raise CannotResizeError(f"the samples of a {type(batch).__name__} cannot be told apart")
    return made


def _picked(value: Any, own: int, picks: list[int]) -> Any:
    """The value with other samples; ``None``: it has none."""
    if (shape := getattr(value, "shape", None)) is not None:
        return _of_array(value, own, picks) if len(shape) else None
    if holds_samples(value) and len(value) == own:
        return _of_list(value, picks)
    if not isinstance(value, (list, tuple, Mapping)):
        return None
    items = list(value.values()) if isinstance(value, Mapping) else list(value)
    a_list = isinstance(value, (list, tuple)) and len(value) == own
    rows = all(_has_samples(item, own) for item in items if _has_array(item))
    if a_list and not rows and not _are_fields(items, own):
        # Targets of different lengths, of which one may have as many boxes as the batch has samples.
        return _of_list(value, picks)
    found = [_picked(item, own, picks) for item in items]
    if all(one is None for one in found):
        return _of_list(value, picks) if a_list else None
    rest = iter(found)
    return with_items(value, lambda item: item if (one := next(rest)) is None else one)


def _are_fields(items: list[Any], own: int) -> bool:
    """Whether two items, say, are images and targets of two samples each, and not two samples.

    Images are like each other, and targets are; the image and the target of a sample are not.
    """
    for item in items:
        if shape := getattr(item, "shape", ()):
            if shape[0] != own:
                return False
        elif not isinstance(item, (list, tuple)) or len(item) != own or len(set(map(_kind, item))) != 1:
            return False
    return True


def _kind(value: Any) -> tuple[type, int]:
    return type(value), len(getattr(value, "shape", ()))


def _of_list(value: Any, picks: list[int]) -> Any:
    items = [value[pick] for pick in picks]
    return items if isinstance(value, list) else tuple(items)


def _of_array(value: Any, own: int, picks: list[int]) -> Any:
    device = getattr(value, "device", None)
    if getattr(device, "type", "cpu") != "cpu":  # numpy's arrays have a word there, or nothing
        raise CannotResizeError(f"the script's loader makes batches on {device}, whose memory they would take")
    if value.shape[0] != own:
        if value.shape[0] == 1:
            return None  # for the whole batch
        # Boxes of all images in one array, say, which name their image by its number.
        counted = "one sample" if own == 1 else f"{own} samples"
        raise CannotResizeError(f"batches of {counted} have an array of {value.shape[0]} rows in them")
    made = value[picks]
    return made.pin_memory() if _is_pinned(value) else made


def _is_pinned(value: Any) -> bool:
    return bool(hasattr(value, "is_pinned") and value.is_pinned())


def _has_samples(value: Any, own: int) -> bool:
    """Whether all arrays in it have a row for each sample."""
    if isinstance(value, Mapping):
        return all(_has_samples(item, own) for item in value.values())
    if isinstance(value, (list, tuple)):
        return all(_has_samples(item, own) for item in value)
    shape = getattr(value, "shape", ())
    return not shape or shape[0] == own


def _has_array(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_array, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_array, value))
    return bool(getattr(value, "shape", ()))


def _check_memory(batch: Any, factor: float) -> None:
    available = available_bytes()
    needed = factor * bytes_of(batch)
    if available is not None and needed > _MOST_OF_HOST * available:
        raise HostMemoryError(
            f"a batch of {needed / 2**30:.1f} GiB is more than a quarter of the host's available memory "
            f"({available / 2**30:.1f} GiB)"
        )


def available_bytes() -> int | None:
    """Memory that this process may still have, as far as host and control group say; ``None``: neither does."""
    limits = [memory_available_bytes()]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = re.search(r"^MemAvailable: +(\d+) kB", file.read(), re.MULTILINE)
        limits.append(None if found is None else int(found[1]) << 10)
    except OSError:
        pass
    return min((limit for limit in limits if limit is not None), default=None)


def bytes_of(value: Any) -> int:
    """Memory of the arrays in a batch; of page-locked ones twice as much, because they are copied (bytes)."""
    if isinstance(value, Mapping):
        return sum(map(bytes_of, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))
    size = getattr(value, "nbytes", 0)
    return size * (1 + _is_pinned(value)) if isinstance(size, int) else 0
