from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.machine.mounts import kernel_devices, parse_kernel_devices

MOUNTINFO = b"""22 28 0:21 / /proc rw,nosuid - proc proc rw
23 28 0:22 / /sys ro shared:7 - sysfs sysfs rw
24 28 0:5 / /dev rw - devtmpfs udev rw
28 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw
29 24 0:26 / /dev/shm rw - tmpfs tmpfs rw
30 28 0:40 / /with\\040space rw - proc proc rw
a line in another form
31 28 none / /x rw - proc proc rw
"""


def test_only_file_systems_that_the_kernel_makes() -> None:
    assert parse_kernel_devices(MOUNTINFO) == {os.makedev(0, minor) for minor in (21, 22, 5, 40)}


def test_a_mountinfo_that_cannot_be_read(tmp_path: Path) -> None:
    assert kernel_devices(str(tmp_path)) == frozenset()


def test_this_machine_s_proc_is_one_of_them() -> None:
    if not os.path.ismount("/proc"):
        pytest.skip("/proc is not mounted")
    found = kernel_devices()
    assert os.stat("/proc").st_dev in found
    assert os.stat(__file__).st_dev not in found
