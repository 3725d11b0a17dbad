from __future__ import annotations

import pytest

from pipetune.protection.mount_table import Mount, is_below, parse_mounts, reachable_mounts

TEXT = rb"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 8:1 /x /mnt/a\040disk ro,noatime master:1 - xfs /dev/sda1 rw
25 22 0:40 / /home/u/nfs rw - nfs4 server:/x ro,vers=4
26 22 0:41 / /run/user/1000 rw - tmpfs tmpfs rw
a line of another form
"""


def test_mounts_are_parsed() -> None:
    root, proc, disk, nfs, run = parse_mounts(TEXT)
    assert root == Mount(mount_id=22, point="/", kind="ext4", read_only=False)
    assert (disk.point, disk.read_only) == ("/mnt/a disk", True)
    assert nfs.read_only, "the file system is read-only, whatever the mount says"
    assert [mount.is_live for mount in (root, proc, disk, nfs, run)] == [False, True, False, False, True]


def test_a_disk_below_run_is_no_live_file_system() -> None:
    assert not Mount(mount_id=1, point="/run/media/u/disk", kind="exfat", read_only=False).is_live


def test_the_mounts_of_this_process_begin_with_the_root() -> None:
    mounts = reachable_mounts()
    assert mounts[0].point == "/"
    points = [mount.point for mount in mounts]
    assert all(points.index(point) < points.index(other) for point in points for other in points
               if other != point and is_below(other, [point]))  # fmt: skip
    assert len(points) == len(set(points)), "of mounts over each other only the uppermost counts"


@pytest.mark.parametrize(
    ("path", "folder", "below"),
    [("/a", "/a", True), ("/a/b", "/a", True), ("/ab", "/a", False), ("/a", "/", True), ("/", "/a", False)],
)
def test_what_is_below(path: str, folder: str, below: bool) -> None:
    assert is_below(path, [folder]) is below
