"""The fake driver, as the tests of this folder use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.machine.nvml.fake_gpus import Gpus


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path) -> Gpus:
    return Gpus(nvml_library, tmp_path)


@pytest.fixture
def old_gpus(old_nvml_library: Path, tmp_path: Path) -> Gpus:
    return Gpus(old_nvml_library, tmp_path)
