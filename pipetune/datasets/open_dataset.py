"""Opens the data set that ``--dataset`` names, as an :class:`~pipetune.datasets.index.ImageSet`."""

from __future__ import annotations

import os
from dataclasses import replace

from pipetune.datasets.folder import DEFAULT_LIMIT_IMAGES, scan_folder
from pipetune.datasets.folder_walk import Progress
from pipetune.datasets.index import ImageSet
from pipetune.datasets.other_kinds import refuse_other_kinds
from pipetune.datasets.photo_like import PROFILES
from pipetune.datasets.shard_names import find_shards
from pipetune.datasets.shards import scan_shards
from pipetune.datasets.splits import find_training_split
from pipetune.datasets.synthetic import open_synthetic
from pipetune.datasets.synthetic_uri import SCHEME
from pipetune.errors import UsageError, nearest

#: A name this like a synthetic data set's is a mistyped one rather than a missing folder.
_LIKELY = 0.6


def open_dataset(
    spec: str,
    *,
    seed: int,
    limit_images: int = DEFAULT_LIMIT_IMAGES,
    limit_bytes: int,
    workers: int,
    progress: Progress | None = None,
    strict: bool = False,
    skip_empty_classes: bool = False,
) -> ImageSet:
    """Open a folder of images, WebDataset shards (a tar file or a folder of them), or a ``synthetic:`` data set.

    A synthetic data set is made first where it does not exist.

    Args:
        spec: a path (``~`` is the home folder), or ``synthetic:PROFILE?n=…&seed=…&classes=…``.
        seed: of the subset that is drawn where a limit is exceeded.
        limit_images: use at most this many images.
        limit_bytes: use at most this many bytes of images, e.g. a quarter of the memory.
        workers: processes that make synthetic images.
        progress: (stage, done, total or ``None``), called at most 10 times a second.
        strict: for a training: see :func:`pipetune.datasets.folder.scan_folder`.
        skip_empty_classes: see there.

    Raises:
        UsageError: no such folder, no images in it, unknown synthetic data set or option.
        PipetuneError: the synthetic images could not be made.
    """
    if spec.startswith(SCHEME):
        return open_synthetic(
            spec, workers=workers, seed=seed, limit_images=limit_images, limit_bytes=limit_bytes, progress=progress
        )
    if not spec:
        raise UsageError("the data set has no name", hint="name a folder of images, or try synthetic:caltech256")
    path = os.path.expanduser(spec)
    if not os.path.lexists(path):
        meant = _nearest_uri(spec)
        if meant is not None:
            raise UsageError(f"no such directory: {spec!r}", hint=f"did you mean {meant}?")
    refuse_other_kinds(spec)
    shards = find_shards(path)
    if shards:
        return scan_shards(
            path, shards, limit_images=limit_images, limit_bytes=limit_bytes, seed=seed, progress=progress,
            strict=strict,
        )  # fmt: skip
    split = find_training_split(path)
    folder = path if split is None else split.folder
    images = scan_folder(
        folder, limit_images=limit_images, limit_bytes=limit_bytes, seed=seed, progress=progress, strict=strict,
        skip_empty_classes=skip_empty_classes,
    )  # fmt: skip
    return images if split is None else replace(images, audit=split.note_in(images.audit))


def _nearest_uri(spec: str) -> str | None:
    """The URI that a mistyped one resembles; ``None`` where it is more likely a path."""
    if "/" in spec:
        return None
    scheme, colon, rest = spec.partition(":")
    name, mark, options = rest.partition("?") if colon else spec.partition("?")
    near = nearest(name, PROFILES, limit=1, likeness=_LIKELY)
    if colon and nearest(scheme, [SCHEME.rstrip(":")], likeness=_LIKELY):
        return f"{SCHEME}{near[0] if near else next(iter(PROFILES))}{mark}{options}"
    if near and not colon:
        return f"{SCHEME}{near[0]}{mark}{options}"
    if nearest(spec, [SCHEME.rstrip(":")], likeness=_LIKELY):
        return f"{SCHEME}{next(iter(PROFILES))}"
    return None
