"""Trees of processes in a folder of plain files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import Clock
from tests.unit.machine.fake_proc import FakeProc


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[True, False], ids=["children files", "scan"])
def fake(request: pytest.FixtureRequest, tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path, children_files=request.param)
