"""Fixtures that several folders of tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fake_nvml


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the fake NVML of a current driver; see :mod:`tests.fake_nvml`."""
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for a driver before 520."""
    return fake_nvml.build(tmp_path_factory.mktemp("old_nvml"), old_driver=True)
