from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def small_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan tries the disk, which is slow on a machine that tests: with little it is the same code."""
    monkeypatch.setattr("pipetune.packing.duration._DISK_BYTES", 1 << 20)
