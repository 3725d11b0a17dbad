from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipetune.protection import room
from pipetune.protection.room import DiskNearlyFullError, RoomWatch, measure_disk_use

GIB = 1 << 30


@pytest.fixture
def set_free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def change(free_bytes: int) -> None:
        monkeypatch.setattr(room.os, "statvfs", lambda _: SimpleNamespace(f_bavail=free_bytes // 4096, f_frsize=4096))

    return change


@pytest.mark.parametrize(("at_begin", "enough", "too_few"), [(100 * GIB, GIB, GIB - 4096), (GIB, GIB // 5, GIB // 11)])
def test_a_reserve_is_kept(set_free: Callable[[int], None], at_begin: int, enough: int, too_few: int) -> None:
    set_free(at_begin)
    watch = RoomWatch("/runs/one", lambda: 7 * GIB)
    set_free(enough)
    watch.require_room()
    set_free(too_few)
    with pytest.raises(DiskNearlyFullError) as caught:
        watch.require_room()
    text = str(caught.value)
    assert "\n" not in text
    for part in ("written 7.00 GiB, and the disk of /runs/one has", "--out", "{scratch}", "--allow-writes"):
        assert part in text


def test_a_disk_that_cannot_be_asked_any_more_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    watch = RoomWatch(str(folder), lambda: 0)
    folder.rmdir()
    watch.require_room()


def test_a_file_with_several_names_counts_once_and_a_hole_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(os.urandom(1 << 20))
    alone = measure_disk_use([str(tmp_path / "a")])
    (tmp_path / "f").mkdir()
    empty = measure_disk_use([str(tmp_path / "f")])
    os.link(tmp_path / "a", tmp_path / "f" / "b")
    (tmp_path / "f" / "elsewhere").symlink_to("/usr")
    with open(tmp_path / "f" / "sparse", "wb") as file:
        file.truncate(1 << 30)
    assert alone >= 1 << 20
    assert measure_disk_use([str(tmp_path / "a"), str(tmp_path / "f")]) <= alone + empty + (64 << 10)
    assert measure_disk_use([str(tmp_path / "missing")]) == 0
