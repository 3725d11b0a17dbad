from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from pipetune.install import find
from pipetune.install.find import find_pillow, find_pillow_simd, importable_pillow, is_simd, pillow_in, side_directory


def put_pillow(folder: Path, version: str) -> Path:
    (folder / "PIL").mkdir(parents=True)
    (folder / "PIL" / "_version.py").write_text(f'# Master version for Pillow\n__version__ = "{version}"\n')
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder of the user, and nothing on the path."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "path", [])
    return tmp_path


def test_the_side_directory_is_the_users_and_for_one_python_and_machine(home: Path) -> None:
    place = side_directory("pillow-simd")
    assert place.parent == home / "data" / "pipetune" / "side"
    assert place.name == f"pillow-simd-{sys.implementation.cache_tag}-{platform.machine()}"


@pytest.mark.parametrize(
    ("version", "simd", "name"),
    [("12.1.1.post0", True, "Pillow-SIMD 12.1.1.post0"), ("13.0.0", False, "Pillow 13.0.0")],
)
def test_the_version_says_which_pillow_it_is(tmp_path: Path, version: str, simd: bool, name: str) -> None:
    found = pillow_in(put_pillow(tmp_path, version))
    assert found is not None
    assert (found.version, found.simd, found.name, found.folder) == (version, simd, name, str(tmp_path))
    assert is_simd(version) is simd


def test_no_pillow_in_a_folder_without_one_or_with_half_of_one(tmp_path: Path) -> None:
    assert pillow_in(tmp_path) is None
    assert pillow_in(tmp_path / "absent") is None
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "_version.py").write_text("version = 3\n")
    assert pillow_in(tmp_path) is None


def test_the_first_on_the_path_counts_and_not_the_working_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = put_pillow(home / "here", "1.0")
    first, second = put_pillow(home / "first", "2.0"), put_pillow(home / "second", "3.0")
    monkeypatch.chdir(here)
    assert importable_pillow() is None
    monkeypatch.setattr(sys, "path", ["", str(home / "empty"), str(first), str(second)])
    found = importable_pillow()
    assert found is not None
    assert found.version == "2.0"


def test_simd_in_place_of_pillow(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(put_pillow(home / "site", "9.5.0.post2"))])
    assert find_pillow() is None
    found = find_pillow_simd()
    assert found is not None
    assert found.folder == str(home / "site")


def test_simd_beside_pillow(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(put_pillow(home / "site", "13.0.0"))])
    assert find_pillow_simd() is None
    put_pillow(find.side_directory("pillow-simd"), "12.1.1.post0")
    beside, pillow = find_pillow_simd(), find_pillow()
    assert beside is not None
    assert pillow is not None
    assert (beside.name, pillow.name) == ("Pillow-SIMD 12.1.1.post0", "Pillow 13.0.0")


def test_the_pillow_found_is_the_one_that_import_gives() -> None:
    import PIL

    found = importable_pillow()
    assert found is not None
    assert found.version == PIL.__version__
    assert Path(PIL.__file__).is_relative_to(found.folder)
