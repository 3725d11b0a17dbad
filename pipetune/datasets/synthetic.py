"""Opening a synthetic data set: photo-like JPEGs, which are made where the user's cache folder does not hold them."""

from __future__ import annotations

import dataclasses

from pipetune.datasets.folder import DEFAULT_LIMIT_IMAGES, scan_folder, throttle
from pipetune.datasets.folder_walk import Progress
from pipetune.datasets.index import ImageSet
from pipetune.datasets.synthetic_cache import ensure_made, folder_of
from pipetune.datasets.synthetic_uri import parse_uri


def open_synthetic(
    uri: str,
    *,
    workers: int,
    seed: int = 0,
    limit_images: int = DEFAULT_LIMIT_IMAGES,
    limit_bytes: int = 1 << 62,
    progress: Progress | None = None,
) -> ImageSet:
    """Open the set that ``uri`` names; one that is not in the cache is made first.

    Args:
        uri: see :func:`~pipetune.datasets.synthetic_uri.parse_uri`; the pictures depend on the seed in it alone.
        workers: processes that make pictures; about 150 images a second each.
        seed: of the subset that is drawn where the set exceeds a limit.
        limit_images: see :func:`pipetune.datasets.folder.scan_folder`.
        limit_bytes: the same.
        progress: called at most 10 times a second.

    Raises:
        UsageError: the URI names an unknown profile or option, or a value out of range; there is no cache folder.
        PipetuneError: the cache folder cannot be written, or has no room.
    """
    spec = parse_uri(uri)
    ensure_made(spec, workers, throttle(progress))
    image_set = scan_folder(
        folder_of(spec), limit_images=limit_images, limit_bytes=limit_bytes, seed=seed, progress=progress
    )
    return dataclasses.replace(image_set, name=spec.uri)
