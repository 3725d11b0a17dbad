"""What all tests of this folder have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.mutations import little_memory


@pytest.fixture(autouse=True)
def _in_little_memory() -> Iterator[None]:
    """A file of a few kB must not take a gigabyte."""
    with little_memory(1 << 30):
        yield
