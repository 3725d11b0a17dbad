from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from pipetune.protection import layout
from pipetune.protection.layout import (
    OPEN,
    OVERLAY,
    READ_ONLY,
    SHADOW,
    FolderReader,
    Layer,
    in_mount_order,
    lay_over_folders,
    lay_over_mounts,
    open_places,
)
from pipetune.protection.mount_table import Mount


def mount(point: str, kind: str = "ext4", *, read_only: bool = False) -> Mount:
    return Mount(mount_id=1, point=point, kind=kind, read_only=read_only)


class Folders(FolderReader):
    """A disk with these folders."""

    def __init__(self, folders: Iterable[str], writable: Iterable[str] = ()) -> None:
        self._folders, self._writable = list(folders), set(writable)

    def children(self, folder: str) -> list[str]:
        return [path for path in self._folders if path != "/" and str(Path(path).parent) == folder]

    def is_writable(self, folder: str) -> bool:
        return folder in self._writable


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout.os.path, "isdir", lambda path: not path.endswith(".conf"))


def kinds(layers: Iterable[Layer]) -> dict[str, str]:
    return {layer.path: layer.kind for layer in layers}


def test_root_lays_one_over_each_file_system() -> None:
    mounts = [
        mount("/"),
        mount("/data", "xfs"),
        mount("/dev", "devtmpfs"),
        mount("/etc/resolv.conf"),
        mount("/ro", "squashfs", read_only=True),
        mount("/dev/shm", "tmpfs"),
        mount("/dev/disk", "ext4"),
    ]
    layers = lay_over_mounts(mounts)
    assert kinds(layers) == {
        "/": OVERLAY, "/data": OVERLAY, "/dev": OPEN, "/etc/resolv.conf": READ_ONLY, "/ro": OPEN, "/dev/disk": OVERLAY,
    }  # fmt: skip
    assert [layer.path for layer in layers if layer.recursive] == ["/dev"]


def test_in_a_user_namespace_the_largest_folders_without_mounts_are_covered() -> None:
    folders = Folders(["/", "/home", "/mnt", "/mnt/disk", "/mnt/empty", "/proc", "/run"])
    layers = lay_over_folders([mount("/"), mount("/proc", "proc"), mount("/mnt/disk", "xfs")], folders)
    assert kinds(layers) == {"/home": OVERLAY, "/mnt/empty": OVERLAY, "/mnt/disk": OVERLAY}


def test_a_writable_folder_with_mounts_below_gets_a_shadow() -> None:
    folders = Folders(["/", "/home", "/home/u", "/home/u/src", "/home/u/nfs", "/home/u/fuse"], ["/home/u"])
    mounts = [mount("/"), mount("/home/u/fuse", "nfs", read_only=True), mount("/home/u/nfs", "nfs")]
    layers = lay_over_folders(mounts, folders)
    assert kinds(layers) == {
        "/home/u": SHADOW, "/home/u/src": OVERLAY, "/home/u/nfs": OVERLAY, "/home/u/fuse": OPEN,
    }  # fmt: skip


def test_places_of_pipetune_are_open(tmp_path: Path) -> None:
    layers = [Layer(kind=OVERLAY, path=str(tmp_path)), Layer(kind=OPEN, path="/dev")]
    (tmp_path / "run").mkdir()
    places = [tmp_path / "run", tmp_path / "run", tmp_path / "gone", Path("/dev/shm")]
    assert open_places(layers, places, recursive=False) == [Layer(kind=OPEN, path=str(tmp_path / "run"))]


def test_nothing_covers_what_lies_below_it() -> None:
    paths = ["/a/b/c", "/", "/b", "/a", "/a/b"]
    assert [layer.path for layer in in_mount_order(Layer(kind=OVERLAY, path=path) for path in paths)] == [
        "/", "/a", "/b", "/a/b", "/a/b/c",
    ]  # fmt: skip
