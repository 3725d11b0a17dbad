"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import capabilities, fake_cuda, fake_nvml
from tests.shared_folder import shared_folder

# A shell starts what it puts in the background with Ctrl-C ignored, and that is inherited: no test of it could succeed.
signal.signal(signal.SIGINT, signal.default_int_handler)


#: Seconds for a test marked ``slow``: one takes a minute on a quiet machine, and another runs beside it.
SLOW_TIMEOUT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the fake NVML of a current driver; see :mod:`tests.fake_nvml`."""
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for a driver before 520."""
    return fake_nvml.build(tmp_path_factory.mktemp("old_nvml"), old_driver=True)


@pytest.fixture(scope="session")
def cuda_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the stand-in CUDA runtime; see :mod:`tests.fake_cuda`. Skips, with the reason, where it cannot be."""
    reason = fake_cuda.why_not()
    if reason:
        pytest.skip(f"no stand-in CUDA runtime: {reason}")
    with shared_folder(tmp_path_factory, "fake_cuda") as folder:
        if not (folder / "libcuda.so.1").exists():
            fake_cuda.build(folder)
    return folder


@pytest.fixture(scope="session")
def jpeg_roi_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Value for ``XDG_DATA_HOME`` under which the real command has built jpeg-roi; skips without compiler or header."""
    with shared_folder(tmp_path_factory, "roi_home") as home:
        done = subprocess.run(
            [sys.executable, "-m", "pipetune", "doctor", "--install", "jpeg-roi"], capture_output=True, text=True,
            env={**os.environ, "XDG_DATA_HOME": str(home)}, check=False,
        )  # fmt: skip
    if done.returncode == 2:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def jpeg_roi(jpeg_roi_home: Path) -> Iterator[None]:
    """This process and those that it starts find jpeg-roi."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(jpeg_roi_home))
        yield


@pytest.fixture(scope="session")
def pillow_simd_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Value for ``XDG_DATA_HOME`` under which the real command has installed Pillow-SIMD.

    The build takes half a minute or more: mark a test that asks for it with a generous ``timeout``. Skips where
    something that the build needs is missing, the package index is out of reach, or the processor is of another kind.
    """
    with shared_folder(tmp_path_factory, "data_home") as home:
        done = subprocess.run(
            [sys.executable, "-m", "pipetune", "doctor", "--install", "pillow-simd"], capture_output=True, text=True,
            # Compiled faster than usual. Offline, pip is to give up soon.
            env={
                **os.environ, "XDG_DATA_HOME": str(home), "CFLAGS": f"{os.environ.get('CFLAGS', '')} -O0 -g0",
                "PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "20",
            }, check=False,
        )  # fmt: skip
    if done.returncode == 2 or "is the package index reachable?" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def no_right_to_read_everything() -> Iterator[None]:
    """This thread, and those that it starts, may read what file modes say; root otherwise may read everything."""
    rights = os.geteuid() == 0
    kept = capabilities.without(capabilities.READ_EVERYTHING) if rights else None
    try:
        yield
    finally:
        if kept is not None:
            capabilities.restore(kept)


@pytest.fixture(autouse=True)
def nobody_was_asked_to_stop() -> Iterator[None]:
    """A command that a test runs in this process, and signals, would have later ones measure nothing."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    signals = sys.modules.get("pipetune.processes.signals")
    if signals is not None:
        signals._Asked.number = None
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
