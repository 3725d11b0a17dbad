"""Words that name a part of a data set, such as ``train`` and ``val``: folders and shards with them are no classes."""

from __future__ import annotations

import re

#: Word -> the part.
PARTS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
    "eval": "test",
}


def find_part(name: str) -> str | None:
    """The part that a name speaks of, as ``val`` of ``imagenet-validation-0001.tar``; ``None``: it names none."""
    return next((PARTS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in PARTS), None)
