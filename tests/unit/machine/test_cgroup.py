from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipetune.machine import cgroup
from pipetune.machine.cgroup import (
    memory_available_bytes,
    memory_limit_bytes,
    parse_cfs_quota,
    parse_cpu_max,
    parse_membership,
    parse_memory_limit,
    parse_memory_stat,
    parse_mountinfo,
    quota_cores,
)
from tests import ROOT

V2_MOUNT = "29 23 0:26 {root} {point} rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "33 31 0:29 {root} {point} rw,relatime - cgroup cgroup rw,{controllers}"
NOISE = "22 28 0:21 / /proc rw,nosuid - proc proc rw\n31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755"


def v2(root: str = "/", point: str = "/sys/fs/cgroup") -> str:
    return V2_MOUNT.format(root=root, point=point)


def v1(controllers: str, root: str = "/", point: str = "/sys/fs/cgroup/cpu,cpuacct") -> str:
    return V1_MOUNT.format(root=root, point=point, controllers=controllers)


class Tree:
    """A fabricated machine: a proc folder and whatever control group files a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = {"proc": folder / "proc", "root": folder}

    def member(self, *lines: str) -> None:
        self.write("proc/self/cgroup", *lines)

    def mounts(self, *lines: str) -> None:
        self.write("proc/self/mountinfo", NOISE, *lines)

    def write(self, path: str, *lines: object) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("150000 100000\n", 1.5), ("max 100000\n", None), ("50000", 0.5), ("", None), ("rubbish", None), ("1 0", None)],
)
def test_parse_cpu_max(text: str, cores: float | None) -> None:
    assert parse_cpu_max(text) == cores


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [("50000\n", "100000\n", 0.5), ("-1\n", "100000\n", None), ("0", "100000", None), ("", "", None)],
)
def test_parse_cfs_quota(quota: str, period: str, cores: float | None) -> None:
    assert parse_cfs_quota(quota, period) == cores


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max\n", None),
        ("9223372036854771712\n", None),  # version 1 without a limit, pages of 4 KiB
        ("9223372036854710272\n", None),  # pages of 64 KiB
        ("8589934592\n", 2**33),
        ("0\n", 0),
        ("", None),
    ],
)
def test_parse_memory_limit(text: str, limit: int | None) -> None:
    assert parse_memory_limit(text) == limit


def test_parse_memory_stat() -> None:
    assert parse_memory_stat("anon 12\ninactive_file 34\nodd\nnegative -1\n") == {"anon": 12, "inactive_file": 34}


def test_parse_membership() -> None:
    text = "12:cpu,cpuacct:/docker/ab:c\n1:name=systemd:/x\n0::/user.slice\nrubbish\n"
    assert parse_membership(text) == {
        "cpu": "/docker/ab:c", "cpuacct": "/docker/ab:c", "name=systemd": "/x", "": "/user.slice"
    }  # fmt: skip


def test_parse_mountinfo_reads_both_versions_and_skips_the_rest() -> None:
    first, second = parse_mountinfo("\n".join([NOISE, v1("cpu,cpuacct", "/docker/1"), "", "too short", v2()]))
    assert {"cpu", "cpuacct"} <= first.controllers
    assert (first.root, first.point) == ("/docker/1", "/sys/fs/cgroup/cpu,cpuacct")
    assert (second.controllers, second.root, second.point) == (frozenset({""}), "/", "/sys/fs/cgroup")


def test_parse_mountinfo_undoes_the_kernels_escapes() -> None:
    (mount,) = parse_mountinfo(v2(point=r"/mnt/a\040b\134c"))
    assert mount.point == "/mnt/a b\\c"


def test_v2_takes_the_tightest_of_the_group_and_its_ancestors(tree: Tree) -> None:
    tree.member("0::/pods/pod1/box")
    tree.mounts(v2())
    tree.write("sys/fs/cgroup/pods/pod1/box/cpu.max", "400000 100000")
    tree.write("sys/fs/cgroup/pods/pod1/cpu.max", "250000 100000")
    tree.write("sys/fs/cgroup/pods/cpu.max", "max 100000")
    tree.write("sys/fs/cgroup/pods/pod2/cpu.max", "100000 100000")  # a neighbour's
    assert quota_cores(**tree.where) == 2.5


def test_v2_without_a_quota(tree: Tree) -> None:
    tree.member("0::/")
    tree.mounts(v2())
    tree.write("sys/fs/cgroup/cgroup.procs", 1)
    assert quota_cores(**tree.where) is None
    assert memory_limit_bytes(**tree.where) is None
    assert memory_available_bytes(**tree.where) is None


def test_v1_takes_the_tightest_of_the_group_and_its_ancestors(tree: Tree) -> None:
    tree.member("4:cpu,cpuacct:/batch/job7")
    tree.mounts(v1("cpu,cpuacct"))
    base = "sys/fs/cgroup/cpu,cpuacct"
    for group, quota, period in (("batch/job7", -1, 100000), ("batch", 150000, 50000), (".", -1, 100000)):
        tree.write(f"{base}/{group}/cpu.cfs_quota_us", quota)
        tree.write(f"{base}/{group}/cpu.cfs_period_us", period)
    assert quota_cores(**tree.where) == 3.0


def test_hybrid_reads_v1_beside_a_v2_mount_without_controllers(tree: Tree) -> None:
    tree.member("1:cpu:/", "0::/")
    tree.mounts(v1("cpu", point="/sys/fs/cgroup/cpu"), v2(point="/sys/fs/cgroup/unified"))
    tree.write("sys/fs/cgroup/unified/cgroup.procs", 1)
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", 50000)
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", 100000)
    assert quota_cores(**tree.where) == 0.5


def test_container_whose_mount_shows_its_own_group(tree: Tree) -> None:
    tree.member("4:cpu:/docker/abc/inner")
    tree.mounts(v1("cpu", root="/docker/abc", point="/sys/fs/cgroup/cpu"))
    tree.write("sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", 200000)
    tree.write("sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", 100000)
    assert quota_cores(**tree.where) == 2.0


@pytest.mark.parametrize(
    ("path", "root"), [("/docker/abc", "/"), ("/../outside", "/"), ("/docker", "/docker/abc"), ("/", "/../..")]
)
def test_container_whose_group_is_not_below_the_mount_falls_back_to_its_root(tree: Tree, path: str, root: str) -> None:
    tree.member(f"0::{path}")
    tree.mounts(v2(root=root))
    tree.write("sys/fs/cgroup/cpu.max", "200000 100000")
    tree.write("sys/fs/outside/cpu.max", "100000 100000")
    assert quota_cores(**tree.where) == 2.0


def test_another_containers_group_mounted_here_is_not_taken(tree: Tree) -> None:
    tree.member("0::/")
    tree.mounts(v2(root="/../other", point="/mnt/other"), v2())
    tree.write("mnt/other/cpu.max", "100000 100000")
    tree.write("sys/fs/cgroup/cpu.max", "300000 100000")
    assert quota_cores(**tree.where) == 3.0


JOB = 41


@pytest.mark.parametrize("path", ["/../job", "/docker/job"], ids=["own namespace", "without one"])
def test_of_a_process_in_another_container_its_own_mounts_are_looked_at(tree: Tree, path: str) -> None:
    """And never the group of the container that looks."""
    tree.member("0::/docker/watcher" if path.startswith("/docker") else "0::/")
    tree.mounts(v2(root="/docker/watcher" if path.startswith("/docker") else "/"))
    tree.write("sys/fs/cgroup/cpu.max", "50000 100000")
    tree.write(f"proc/{JOB}/cgroup", f"0::{path}")
    assert quota_cores(**tree.where, pid=JOB) is None, "its mounts are not readable"
    tree.write(f"proc/{JOB}/mountinfo", NOISE, v2())
    tree.write(f"proc/{JOB}/root/sys/fs/cgroup/cpu.max", "800000 100000")
    assert quota_cores(**tree.where, pid=JOB) == 8.0
    assert quota_cores(**tree.where) == 0.5


def test_of_a_process_in_the_same_container_the_mount_is_the_group(tree: Tree) -> None:
    tree.member("0::/../abc")
    tree.mounts(v2())
    tree.write("sys/fs/cgroup/cpu.max", "50000 100000")
    tree.write(f"proc/{JOB}/cgroup", "0::/../abc")
    assert quota_cores(**tree.where, pid=JOB) == 0.5


def test_nothing_to_read_means_no_limit(tree: Tree) -> None:
    assert quota_cores(**tree.where) is None
    tree.member("0::/")
    assert quota_cores(**tree.where) is None
    assert memory_limit_bytes(**tree.where) is None


def test_v2_memory(tree: Tree) -> None:
    tree.member("0::/pods/box")
    tree.mounts(v2())
    tree.write("sys/fs/cgroup/pods/box/memory.max", 1000)
    tree.write("sys/fs/cgroup/pods/box/memory.current", 700)
    tree.write("sys/fs/cgroup/pods/box/memory.stat", "anon 300", "inactive_file 400")
    tree.write("sys/fs/cgroup/pods/memory.max", 2000)
    tree.write("sys/fs/cgroup/pods/memory.current", 1900)
    tree.write("sys/fs/cgroup/pods/memory.stat", "inactive_file 0")
    assert memory_limit_bytes(**tree.where) == 1000
    assert memory_available_bytes(**tree.where) == 100  # the pod's neighbours have used up more than this box


def test_v1_memory(tree: Tree) -> None:
    tree.member("4:memory:/job")
    tree.mounts(v1("memory", point="/sys/fs/cgroup/memory"))
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    tree.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", 5000)
    tree.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", 4000)
    tree.write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1", "total_inactive_file 1500")
    assert memory_limit_bytes(**tree.where) == 5000
    assert memory_available_bytes(**tree.where) == 2500


def test_usage_above_the_limit_leaves_nothing(tree: Tree) -> None:
    tree.member("0::/")
    tree.mounts(v2())
    tree.write("sys/fs/cgroup/memory.max", 1000)
    tree.write("sys/fs/cgroup/memory.current", 1200)
    assert memory_available_bytes(**tree.where) == 0


def test_a_real_quota_of_half_a_core() -> None:
    group = own_cpu_group() / f"pipetune-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("50000")
    except OSError as error:
        remove(group)
        pytest.skip(f"cannot set a CPU quota here: {error}")
    program = (
        "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(str(os.getpid()));"
        "from pipetune.machine.host import usable_cores; print(usable_cores())"
    )
    try:
        child = subprocess.run(
            [sys.executable, "-c", program, str(group / "cgroup.procs")],
            capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    finally:
        remove(group)
    assert (child.stdout, child.stderr) == ("0.5\n", "")


def own_cpu_group() -> Path:
    """Where this process is in a version 1 hierarchy that has the CPU controller."""
    levels = cgroup._levels("cpu", "/proc", "/")
    if not levels:
        pytest.skip("no version 1 CPU controller is mounted")
    if quota_cores() is not None:
        pytest.skip("there is a CPU quota already, which half a core may not fit below")
    return levels[0]


def remove(group: Path) -> None:
    """The kernel lets go of a group a moment after its last process ended."""
    for _ in range(50):
        if not group.exists():
            return
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.02)
    pytest.fail(f"{group} could not be removed")
