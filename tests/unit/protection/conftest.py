from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.protection.keeper import Keeper
from tests.unit.protection.kept_trees import KeptCalls, make_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_tree(tmp_path / "user")
    return tmp_path / "user"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


@pytest.fixture
def calls(folder: Path) -> KeptCalls:
    return KeptCalls(Keeper(str(folder)))
