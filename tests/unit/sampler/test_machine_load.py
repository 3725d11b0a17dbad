from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.machine.pressure import Pressure
from pipetune.records.observation import MachineLoad
from pipetune.sampler import machine_load
from pipetune.sampler.machine_load import CpuTimes, MachineReader
from tests.unit.machine.fake_proc import FakeProc

#      user nice system idle iowait irq softirq steal guest guest_nice
TOTAL = "cpu  40 2 10 400 20 1 2 5 30 1"
CORE_0 = "cpu0 30 1 5 100 15 1 1 4 30 1"
CORE_1 = "cpu1 10 1 5 300 5 0 1 1 0 0"
STAT = f"{TOTAL}\n{CORE_0}\n{CORE_1}\nintr 1 2 3\n".encode()


def test_guest_time_is_not_counted_twice_and_stolen_time_is_busy() -> None:
    assert machine_load.parse_cpu_times(STAT) == CpuTimes(busy=60, idle=400, iowait=20)


def test_only_the_cores_asked_for_are_added_up() -> None:
    assert machine_load.parse_cpu_times(STAT, {1}) == CpuTimes(busy=18, idle=300, iowait=5)
    assert machine_load.parse_cpu_times(STAT, {0, 1}) == CpuTimes(busy=60, idle=400, iowait=20)


def test_core_1_is_not_core_11() -> None:
    text = b"cpu  9 9 9 9 9 9 9 9 0 0\ncpu11 7 0 0 7 7 0 0 0 0 0\ncpu1 1 0 0 2 3 0 0 0 0 0\nintr 1\n"

    assert machine_load.parse_cpu_times(text, {1}) == CpuTimes(1, 2, 3)


@pytest.mark.parametrize("text", [b"", b"intr 1 2 3\n"])
def test_a_file_without_cores_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"stat|unpack"):
        machine_load.parse_cpu_times(text)
    with pytest.raises(ValueError, match="no line"):
        machine_load.parse_cpu_times(text, {0})


def test_online_cores() -> None:
    assert machine_load.parse_online(STAT) == {0, 1}


def test_shares_sum_to_one_hundred() -> None:
    shares = machine_load.cpu_shares(CpuTimes(100, 100, 100), CpuTimes(130, 160, 110))

    assert shares == (30.0, 60.0, 10.0)


def test_iowait_that_went_back_counts_as_nothing() -> None:
    assert machine_load.cpu_shares(CpuTimes(0, 0, 50), CpuTimes(30, 70, 40)) == (30.0, 70.0, 0.0)


def test_no_clock_tick_is_no_share() -> None:
    assert machine_load.cpu_shares(CpuTimes(1, 2, 3), CpuTimes(1, 2, 3)) is None


def test_reads_shares_since_the_reading_before(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.machine("cpu  100 0 0 100 0 0 0 0 0 0")
    for name, total_us in (("cpu", 1000), ("io", 2000), ("memory", 3000)):
        fake.pressure(name, total_us)
    reader = MachineReader(proc=fake.path)

    first = reader.read(10**9)
    fake.machine("cpu  115 0 0 104 1 0 0 0 0 0")
    for name, total_us in (("cpu", 51_000), ("io", 2000), ("memory", 900_000)):
        fake.pressure(name, total_us)
    second = reader.read(10**9 + 100_000_000)
    reader.close()

    nothing = dict.fromkeys(("cpu_busy_pct", "cpu_idle_pct", "cpu_iowait_pct", *Pressure._fields))
    assert first == MachineLoad(t_ns=10**9, interval_s=0.0, **nothing)  # type: ignore[arg-type]
    assert second == MachineLoad(
        t_ns=10**9 + 100_000_000, interval_s=0.1, cpu_busy_pct=75.0, cpu_idle_pct=20.0, cpu_iowait_pct=5.0,
        psi_cpu_some_pct=50.0, psi_io_some_pct=0.0, psi_memory_some_pct=100.0,
    )  # fmt: skip


def test_some_of_the_cores(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.machine("cpu  0 0 0 0 0 0 0 0 0 0", "cpu0 0 0 0 0 0 0 0 0 0 0", "cpu1 0 0 0 0 0 0 0 0 0 0")
    reader = MachineReader(frozenset({1}), fake.path)
    reader.read(0)

    fake.machine("cpu  90 0 0 110 0 0 0 0 0 0", "cpu0 90 0 0 10 0 0 0 0 0 0", "cpu1 0 0 0 100 0 0 0 0 0 0")
    shares = reader.read(10**8)
    reader.close()

    assert (shares.cpu_busy_pct, shares.cpu_idle_pct) == (0.0, 100.0)


@pytest.mark.parametrize("cores", [None, frozenset[int](), frozenset({0, 1}), frozenset({1, 7})])
def test_all_cores_or_cores_of_another_numbering_mean_the_whole_machine(
    tmp_path: Path, cores: frozenset[int] | None
) -> None:
    fake = FakeProc(tmp_path)
    fake.machine("cpu  0 0 0 0 0 0 0 0 0 0", "cpu0 0 0 0 0 0 0 0 0 0 0", "cpu1 0 0 0 0 0 0 0 0 0 0")
    reader = MachineReader(cores, fake.path)
    reader.read(0)

    # Only the first line changes: the lines of the cores are not read.
    fake.machine("cpu  90 0 0 10 0 0 0 0 0 0", "cpu0 0 0 0 0 0 0 0 0 0 0", "cpu1 0 0 0 0 0 0 0 0 0 0")
    shares = reader.read(10**8)
    reader.close()

    assert shares.cpu_busy_pct == 90.0


def test_absent_files_are_none(tmp_path: Path) -> None:
    reader = MachineReader(proc=str(tmp_path))
    reader.read(0)

    reading = reader.read(10**8)
    reader.close()

    assert reading == MachineLoad(
        t_ns=10**8, interval_s=0.1, cpu_busy_pct=None, cpu_idle_pct=None, cpu_iowait_pct=None, psi_cpu_some_pct=None,
        psi_io_some_pct=None, psi_memory_some_pct=None,
    )  # fmt: skip


def test_the_real_machine() -> None:
    reader = MachineReader(frozenset(os.sched_getaffinity(0)))
    shares = reader.read(0)
    while shares.cpu_busy_pct is None:  # until the kernel's clock has ticked
        shares = reader.read(10**12)
    reader.close()

    assert shares.cpu_idle_pct is not None
    assert shares.cpu_iowait_pct is not None
    assert shares.cpu_busy_pct + shares.cpu_idle_pct + shares.cpu_iowait_pct == pytest.approx(100)
