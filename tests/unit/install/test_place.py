from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipetune.errors import PipetuneError
from pipetune.install.find import why_refused
from pipetune.install.place import SITE, installing


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    """The umask of people who share everything."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "data" / "pipetune" / "side" / "library"


def install(place: Path) -> None:
    with installing(place, pytest.fail) as (work, put_in_place):
        (work / SITE / "PIL").mkdir(parents=True)
        (work / SITE / "PIL" / "core.so").touch()
        put_in_place()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_this_user_can_write_what_is_installed_whatever_the_umask(place: Path) -> None:
    install(place)
    assert [mode(path) for path in (place.parent.parent, place.parent, place)] == [0o700] * 3
    assert (mode(place / "PIL"), mode(place / "PIL" / "core.so")) == (0o755, 0o644)
    assert why_refused(place) is None


def test_folders_of_an_earlier_version_are_taken_from_other_writers(place: Path) -> None:
    place.parent.mkdir(parents=True)
    assert mode(place.parent) == 0o777
    install(place)
    assert (mode(place.parent.parent), mode(place.parent)) == (0o755, 0o755)
    assert why_refused(place) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_nothing_is_installed_into_the_folder_of_somebody_else(place: Path) -> None:
    place.parent.mkdir(parents=True)
    os.chown(place.parent, 65534, 65534)
    with pytest.raises(PipetuneError, match=r"side belongs to another user \(uid 65534\).*; set XDG_DATA_HOME"):
        install(place)
    assert os.listdir(place.parent) == []
