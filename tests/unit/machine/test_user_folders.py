from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from pipetune.datasets.synthetic_cache import cache_root
from pipetune.errors import UsageError
from pipetune.install.find import find_jpeg_roi, find_pillow_simd, side_directory
from pipetune.install.jpeg_roi import install_jpeg_roi
from pipetune.install.pillow_simd import install_pillow_simd
from pipetune.machine.user_folders import cache_folder, data_folder

VARIABLES = ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "PIPETUNE_CACHE_DIR")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that no list of users knows, and an environment without a home."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


def test_the_environment_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".local" / "share" / "pipetune"
    assert cache_folder() == tmp_path / ".cache" / "pipetune"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "data" / "pipetune"
    assert cache_folder() == tmp_path / "cache" / "pipetune"


@pytest.mark.usefixtures("nobody")
def test_a_user_without_a_home_has_none_and_nothing_that_was_built() -> None:
    assert data_folder() is cache_folder() is side_directory("pillow-simd") is find_jpeg_roi() is None
    assert find_pillow_simd() is None


@pytest.mark.usefixtures("nobody")
def test_where_one_is_needed_the_error_says_what_to_set() -> None:
    for install in (install_jpeg_roi, install_pillow_simd):
        with pytest.raises(UsageError, match=f"knows no user {os.geteuid()}; set XDG_DATA_HOME to a folder"):
            install(print)
    with pytest.raises(UsageError, match=r"no place for synthetic images: .* set PIPETUNE_CACHE_DIR to a folder"):
        cache_root()


@pytest.mark.usefixtures("nobody")
def test_a_folder_that_is_named_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPETUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert cache_root() == str(tmp_path / "synthetic")
    assert data_folder() == tmp_path / "pipetune"
