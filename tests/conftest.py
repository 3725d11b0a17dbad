"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fake_nvml

# A shell starts what it puts in the background with Ctrl-C ignored, and that is inherited: no test of it could succeed.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the fake NVML of a current driver; see :mod:`tests.fake_nvml`."""
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for a driver before 520."""
    return fake_nvml.build(tmp_path_factory.mktemp("old_nvml"), old_driver=True)


@pytest.fixture(scope="session")
def pillow_simd_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Value for ``XDG_DATA_HOME`` under which the real command has installed Pillow-SIMD.

    The build takes half a minute or more: mark a test that asks for it with a generous ``timeout``. Skips where
    something that the build needs is missing, the package index is out of reach, or the processor is of another kind.
    """
    # One place for all processes of pytest-xdist: the second one waits for the first and finds it installed.
    shared = "PYTEST_XDIST_WORKER" in os.environ
    home = (tmp_path_factory.getbasetemp().parent if shared else tmp_path_factory.getbasetemp()) / "data_home"
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "pipetune", "doctor", "--install", "pillow-simd"], capture_output=True, text=True,
        # Compiled faster than usual. Offline, pip is to give up soon.
        env={
            **os.environ, "XDG_DATA_HOME": str(home), "CFLAGS": f"{os.environ.get('CFLAGS', '')} -O1",
            "PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "20",
        }, check=False,
    )  # fmt: skip
    if done.returncode == 2 or "is the package index reachable?" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return home
