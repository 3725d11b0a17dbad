"""The name of a synthetic data set, ``synthetic:caltech256?n=2000&seed=0&classes=20``, and what it asks for."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass

from pipetune.datasets.photo_like import GENERATOR_VERSION, PROFILES, PhotoProfile
from pipetune.errors import UsageError, did_you_mean

SCHEME = "synthetic:"
DEFAULT_COUNT = 2000
#: Enough for every use here (the whole of ImageNet is 1.28 million) and small enough for a 7-digit file name.
MAX_COUNT = 9_999_999
_OPTIONS = ("n", "seed", "classes")
#: Files end in a half-empty block, and directories take room too.
_OVERHEAD_BYTES = 3072


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSpec:
    """What one ``synthetic:`` URI asks for; equal specs share one folder."""

    profile: PhotoProfile
    count: int
    seed: int
    classes: int

    @property
    def uri(self) -> str:
        """The full URI, every option written out."""
        return f"{SCHEME}{self.profile.name}?n={self.count}&seed={self.seed}&classes={self.classes}"

    @property
    def folder_name(self) -> str:
        """Unique per (profile, n, seed, classes, generator version)."""
        return f"{self.profile.name}-n{self.count}-s{self.seed}-c{self.classes}-v{GENERATOR_VERSION}"

    @property
    def expected_bytes(self) -> int:
        """Room that the set takes on the disk, about."""
        return self.count * (self.profile.mean_bytes + _OVERHEAD_BYTES)


def parse_uri(uri: str) -> SyntheticSpec:
    """Read ``synthetic:PROFILE[?n=COUNT&seed=SEED&classes=CLASSES]``.

    Defaults: 2000 images, seed 0, one class per 10 images but no more than the imitated data set has.

    Raises:
        UsageError: unknown profile or option, or a value out of range; names what exists.
    """
    name, _, query = uri.removeprefix(SCHEME).partition("?")
    profile = PROFILES.get(name)
    if profile is None:
        raise UsageError(f"no synthetic data set {name!r}", hint=did_you_mean(name, PROFILES, prefix=SCHEME))
    values: dict[str, int] = {}
    for key, text in urllib.parse.parse_qsl(query, keep_blank_values=True):
        if key not in _OPTIONS:
            raise UsageError(f"synthetic data sets have no option {key!r}", hint=did_you_mean(key, _OPTIONS))
        if key in values:
            raise UsageError(f"option {key!r} is given twice in {uri!r}", hint="keep one of them")
        values[key] = _whole_number(key, text)
    count = values.get("n", DEFAULT_COUNT)
    classes = values.get("classes", min(profile.max_classes, max(1, count // 10)))
    if not 1 <= count <= MAX_COUNT:
        raise UsageError(f"n={count} images cannot be made", hint=f"use 1 to {MAX_COUNT}")
    if not 1 <= classes <= count:
        raise UsageError(f"classes={classes} with n={count} images", hint=f"use 1 to {count} classes")
    return SyntheticSpec(profile=profile, count=count, seed=values.get("seed", 0), classes=classes)


def _whole_number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise UsageError(f"{key}={text!r} is not a whole number", hint=f"write it as {key}=100")
    return int(text)
