from __future__ import annotations

import ctypes.util
import importlib.metadata
from pathlib import Path

import pytest

from pipetune.install import ffmpeg
from pipetune.registry import BACKENDS, installed_version


@pytest.fixture
def no_system_ffmpeg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "conda"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path / 'libs'}")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.8.0")


@pytest.mark.usefixtures("no_system_ffmpeg")
@pytest.mark.parametrize("folder", ["libs", "conda/lib"])
def test_it_is_installed_where_ffmpegs_libraries_are_found(folder: str, tmp_path: Path) -> None:
    assert installed_version(BACKENDS["spdl"]) is None

    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "libavcodec.so.61").touch()
    assert not ffmpeg.has_ffmpeg()

    (tmp_path / folder / "libavdevice.so.61").touch()
    assert installed_version(BACKENDS["spdl"]) == "spdl_io 0.8.0"


@pytest.mark.usefixtures("no_system_ffmpeg")
def test_the_systems_libraries_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", {"avdevice": "libavdevice.so.59"}.get)
    assert ffmpeg.find_spdl() == ffmpeg.Spdl(version="0.8.0")


@pytest.mark.usefixtures("no_system_ffmpeg", "no_right_to_read_everything")
def test_a_folder_that_may_not_be_entered_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root" / "lib").mkdir(parents=True)
    (tmp_path / "root").chmod(0o600)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "root" / "lib"))
    assert not ffmpeg.has_ffmpeg()


@pytest.mark.usefixtures("no_system_ffmpeg")
def test_where_nothing_can_be_written_the_compiler_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp', '/']")

    monkeypatch.setattr(ctypes.util, "find_library", refused)
    assert not ffmpeg.has_ffmpeg()


def test_ffmpeg_alone_is_not_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setattr(ffmpeg, "has_ffmpeg", lambda: True)
    assert ffmpeg.find_spdl() is None
