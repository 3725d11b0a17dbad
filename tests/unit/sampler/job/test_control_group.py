from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.sampler.job.control_group import GroupReader, GroupReading, parse_throttled
from tests.unit.sampler.job.fake_job import FakeJob

S = 10**9
NOTHING = GroupReading()
V2_MOUNT = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1_MOUNT = "31 1 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


class Groups(FakeJob):
    """A proc folder and, below it, the file system of the control groups."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "proc")
        self.root = folder
        self.job(10)

    def version_2(self, path: str) -> Path:
        self.write("self/mountinfo", V2_MOUNT)
        self.write("10/cgroup", f"0::{path}\n")
        return self._made(self.root / "sys/fs/cgroup" / path.lstrip("/"))

    def version_1(self, path: str) -> Path:
        self.write("self/mountinfo", V1_MOUNT)
        self.write("10/cgroup", f"4:cpu,cpuacct:{path}\n")
        return self._made(self.root / "sys/fs/cgroup/cpu,cpuacct" / path.lstrip("/"))

    def reader(self) -> GroupReader:
        return GroupReader(10, proc=self.path, root=str(self.root))

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def throttled(folder: Path, us: int) -> None:
    (folder / "cpu.stat").write_text(f"usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec {us}\n")


def pressures(folder: Path, us: int) -> None:
    for name in ("cpu", "io", "memory"):
        (folder / f"{name}.pressure").write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n")


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        (b"usage_usec 1\nthrottled_usec 250\n", 250),
        (b"nr_periods 4\nnr_throttled 1\nthrottled_time 2500000\n", 2500),
        (b"usage_usec 1\n", None),
        (b"", None),
    ],
)
def test_throttled_time_in_both_versions(text: bytes, us: int | None) -> None:
    found = parse_throttled(text)
    assert (None if found is None else found.us) == us


def test_a_sum_over_many_cores_is_no_more_than_the_periods_in_which_it_stopped_any(groups: Groups) -> None:
    folder = groups.version_2("/job")
    (folder / "cpu.max").write_text("800000 100000\n")
    (folder / "cpu.stat").write_text("nr_periods 10\nnr_throttled 2\nthrottled_usec 0\n")
    reader = groups.reader()
    reader.read(S)
    (folder / "cpu.stat").write_text("nr_periods 20\nnr_throttled 7\nthrottled_usec 9000000\n")
    assert reader.read(2 * S).throttled_frac == pytest.approx(0.5)


def test_a_quota_of_version_2_stops_the_group(groups: Groups) -> None:
    folder = groups.version_2("/job")
    (folder / "cpu.max").write_text("200000 100000\n")
    throttled(folder, 1_000_000)
    reader = groups.reader()
    first = reader.read(S)
    throttled(folder, 1_500_000)
    second = reader.read(3 * S)

    assert reader.quota_cores == 2.0
    assert first == NOTHING
    assert second.throttled_frac == pytest.approx(0.25)
    reader.close()
    reader.close()


def test_a_quota_of_version_1_stops_the_group(groups: Groups) -> None:
    folder = groups.version_1("/docker/abc")
    (folder / "cpu.cfs_quota_us").write_text("150000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    (folder / "cpu.stat").write_text("nr_periods 1\nnr_throttled 0\nthrottled_time 0\n")
    reader = groups.reader()
    reader.read(S)
    (folder / "cpu.stat").write_text("nr_periods 9\nnr_throttled 5\nthrottled_time 600000000\n")

    assert reader.quota_cores == 1.5
    assert reader.read(2 * S).throttled_frac == pytest.approx(0.6)
    assert not reader.has_pressure


def test_the_group_that_has_the_quota_is_read(groups: Groups) -> None:
    inner = groups.version_2("/pod/container")
    throttled(inner, 7)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner.parent / "cpu.max").write_text("100000 100000\n")
    throttled(inner.parent, 0)
    reader = groups.reader()
    reader.read(S)
    throttled(inner.parent, 500_000)

    assert reader.quota_cores == 1.0
    assert reader.read(2 * S).throttled_frac == pytest.approx(0.5)


def test_the_tightest_of_several_quotas_is_read(groups: Groups) -> None:
    inner = groups.version_2("/pod/container")
    (inner / "cpu.max").write_text("800000 100000\n")
    (inner.parent / "cpu.max").write_text("100000 100000\n")
    for folder in (inner, inner.parent):
        throttled(folder, 0)
    reader = groups.reader()
    reader.read(S)
    throttled(inner.parent, 500_000)

    assert reader.quota_cores == 1.0
    assert reader.read(2 * S).throttled_frac == pytest.approx(0.5)


def test_queues_of_many_cores_stop_no_more_than_all_of_the_time(groups: Groups) -> None:
    folder = groups.version_2("/job")
    (folder / "cpu.max").write_text("200000 100000\n")
    throttled(folder, 0)
    reader = groups.reader()
    reader.read(S)
    throttled(folder, 30_000_000)

    assert reader.read(2 * S).throttled_frac == 1.0


def test_a_counter_that_falls_stopped_nothing(groups: Groups) -> None:
    folder = groups.version_2("/job")
    (folder / "cpu.max").write_text("200000 100000\n")
    throttled(folder, 10**6)
    reader = groups.reader()
    reader.read(S)
    throttled(folder, 0)

    assert reader.read(2 * S).throttled_frac == 0.0


def test_without_a_quota_nothing_is_stopped_and_nothing_measured(groups: Groups) -> None:
    folder = groups.version_2("/job")
    throttled(folder, 0)
    reader = groups.reader()
    reader.read(S)

    assert reader.quota_cores is None
    assert reader.read(2 * S).throttled_frac is None


def test_a_groups_own_pressure_is_read(groups: Groups) -> None:
    folder = groups.version_2("/job")
    pressures(folder, 100_000)
    reader = groups.reader()
    first = reader.read(S)
    pressures(folder, 400_000)
    second = reader.read(2 * S)

    assert reader.has_pressure
    assert first == NOTHING
    assert second.pressure == pytest.approx((30, 30, 30))


def test_the_topmost_group_is_the_machine(groups: Groups) -> None:
    pressures(groups.version_2("/"), 0)

    assert not groups.reader().has_pressure


def test_pressure_that_is_not_kept_for_all_three_is_none(groups: Groups) -> None:
    folder = groups.version_2("/job")
    pressures(folder, 0)
    (folder / "io.pressure").unlink()

    assert not groups.reader().has_pressure


def test_garbage_is_not_measured(groups: Groups) -> None:
    folder = groups.version_2("/job")
    (folder / "cpu.max").write_text("200000 100000\n")
    throttled(folder, 0)
    pressures(folder, 0)
    reader = groups.reader()
    reader.read(S)
    (folder / "cpu.stat").write_text("throttled_usec many\n")
    (folder / "io.pressure").write_text("some total=x\n")

    reading = reader.read(2 * S)

    assert reading.throttled_frac is None
    assert reading.pressure.psi_io_some_pct is None
    assert reading.pressure.psi_cpu_some_pct == 0.0


def test_two_readings_at_the_same_time_have_nothing_between_them(groups: Groups) -> None:
    pressures(groups.version_2("/job"), 0)
    reader = groups.reader()
    reader.read(S)

    assert reader.read(S) == NOTHING


def test_without_control_groups_nothing_is_measured(groups: Groups) -> None:
    reader = groups.reader()
    reader.read(S)

    assert reader.quota_cores is None
    assert not reader.has_pressure
    assert reader.read(2 * S) == NOTHING


def test_this_process_s_groups_are_read() -> None:
    reader = GroupReader(os.getpid())
    reader.read(S)
    reading = reader.read(2 * S)
    reader.close()

    assert (reading.throttled_frac is not None) <= (reader.quota_cores is not None)
    assert (reading.pressure.psi_io_some_pct is not None) >= reader.has_pressure
