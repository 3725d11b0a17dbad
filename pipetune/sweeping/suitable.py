"""Which backends can do something with the images of a sweep, and where images can be augmented. Pure."""

from __future__ import annotations

from pipetune.augmentation.recipes import BASIC, DEVICE, PLACES, WORKER, device_augments
from pipetune.candidates.settings import SETTINGS, TRANSFORMS_ON
from pipetune.datasets.index import ImageSet
from pipetune.errors import UsageError
from pipetune.records.sweep import AcceleratorSpec
from pipetune.registry import find_backend, loaders_of
from pipetune.sweeping.options import SweepOptions

#: Reduced decoding is tried where at least this share of the images can gain by it.
_LARGE_SHARE = 0.1


def choose_places(options: SweepOptions, accelerator: AcceleratorSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where images can be augmented, of :data:`pipetune.augmentation.recipes.PLACES`, and what to say of it.

    ``()``: they are not augmented by more than crops and flips.
    """
    if options.augment == BASIC:
        return (), ()
    if device_augments(accelerator):
        return PLACES, ()
    return (WORKER,), (
        f"{TRANSFORMS_ON}={DEVICE} is left out: how fast {accelerator.name} augments images is not known; state it, "
        f"e.g. --device '{_written(options.device)}augment=20000'",
    )


def _written(device: str) -> str:
    return f"{device}{'&' if '?' in device else '?'}"


def suitable_backends(
    names: tuple[str, ...], images: ImageSet, options: SweepOptions, places: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backends that can do something with these images, and notes on the others.

    Args:
        places: see :func:`choose_places`.

    Raises:
        UsageError: none of them can.
    """
    notes: dict[str, str] = {}
    # No crop is larger than its image, so no more crops than images can be decoded at half the size.
    large = sum(min(image.width, image.height) >= 2 * options.image_size for image in images.images)
    on_device = DEVICE in places and dict(options.fix).get(TRANSFORMS_ON) != WORKER
    for name in names:
        backend = find_backend(name)
        if images.in_shards and not any(loader.reads_shards for loader in loaders_of(backend)):
            notes[name] = f"backend {name} is left out: it is given files, not the members of tar shards"
        elif images.is_raw and not backend.reads_raw:
            notes[name] = f"backend {name} is left out: it decodes, and these images are stored as pixels"
        elif places and not on_device and not can_augment(name):
            notes[name] = (
                f"backend {name} is left out: {options.augment} would be done on the device, which is left out"
            )
        elif backend.reduced_only and options.backends is None and large < _LARGE_SHARE * len(images.images):
            notes[name] = (
                f"backend {name} is left out: {large:,} of {len(images.images):,} images are twice as large as "
                f"{options.image_size} px, so it would do as {name.removesuffix('-reduced')} does"
            )
    left = tuple(name for name in names if name not in notes)
    if not left:
        raise UsageError(next(iter(notes.values())), hint="name another one with --backends")
    return left, tuple(notes.values())


def can_augment(name: str) -> bool:
    """Whether a backend has a loader that can augment images itself."""
    return any(loader.name in SETTINGS[TRANSFORMS_ON].loaders for loader in loaders_of(find_backend(name)))
