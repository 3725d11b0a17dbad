"""What all tests of this folder have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis.configuration import set_hypothesis_home_dir

from tests.fuzz.mutations import little_memory


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_hypothesis(tmp_path_factory: pytest.TempPathFactory) -> None:
    set_hypothesis_home_dir(str(tmp_path_factory.mktemp("hypothesis")))


@pytest.fixture(autouse=True)
def _in_little_memory() -> Iterator[None]:
    """A file of a few kB must not take a gigabyte."""
    with little_memory(1 << 30):
        yield
