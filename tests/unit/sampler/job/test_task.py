from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.machine.proc import TICK_S
from pipetune.records.observation import DISK, LOCK, OTHER, PIPE, RUNNING, SLEEP
from pipetune.sampler.job.task import WatchedTask
from tests.unit.sampler.job.fake_job import FakeJob, until

S = 10**9


@pytest.fixture
def fake(tmp_path: Path) -> FakeJob:
    return FakeJob(tmp_path)


def _second_reading(fake: FakeJob, pid: int = 10, **after: object) -> object:
    task = WatchedTask(pid, proc=fake.path)
    task.read(S)
    fake.job(pid, **after)  # type: ignore[arg-type]
    reading = task.read(3 * S)
    task.close()
    return reading


def test_a_reading_has_the_rates_since_the_one_before(fake: FakeJob) -> None:
    fake.job(10, ticks=100, delay_ns=5 * S, io=(100, 200, 300))
    task = WatchedTask(10, proc=fake.path)
    task.read(S)
    fake.job(10, ticks=150, delay_ns=6 * S, io=(1100, 2200, 3300), state="D", wchan="folio_wait_bit_common")

    reading = task.read(3 * S)

    assert reading is not None
    assert reading.cpu_frac == pytest.approx(50 * TICK_S / 2)
    assert reading.run_delay_frac == pytest.approx(0.5)
    assert (reading.read_chars, reading.write_chars, reading.read_bytes) == (1000, 2000, 3000)
    assert (reading.state, reading.wait, reading.wchan) == ("D", DISK, "folio_wait_bit_common")
    assert (reading.pid, reading.name) == (10, "python")


def test_the_first_reading_covers_no_time(fake: FakeJob) -> None:
    fake.job(10, ticks=100, delay_ns=5 * S, io=(100, 200, 300))

    reading = WatchedTask(10, proc=fake.path).read(S)

    assert reading is not None
    assert (reading.cpu_frac, reading.run_delay_frac) == (0.0, 0.0)
    assert (reading.read_chars, reading.write_chars, reading.read_bytes) == (0, 0, 0)


def test_counters_that_fall_count_as_unchanged(fake: FakeJob) -> None:
    fake.job(10, ticks=100, delay_ns=5 * S, io=(100, 200, 300))

    reading = _second_reading(fake, ticks=50, delay_ns=S, io=(1, 2, 3))

    assert (reading.cpu_frac, reading.run_delay_frac, reading.read_bytes) == (0.0, 0.0, 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_task_that_has_ended_and_is_not_waited_for_is_gone(fake: FakeJob, state: str) -> None:
    fake.job(10)

    assert _second_reading(fake, state=state) is None


def test_a_number_that_is_used_again_is_another_task(fake: FakeJob) -> None:
    fake.job(10, start=100)

    assert _second_reading(fake, start=101) is None


def test_a_task_that_is_gone_is_gone(fake: FakeJob) -> None:
    fake.job(10)
    task = WatchedTask(10, proc=fake.path)
    fake.end(10)

    assert task.read(S) is None
    assert task.read(2 * S) is None


@pytest.mark.parametrize("keep", [True, False])
def test_a_task_that_was_never_there_is_an_error(fake: FakeJob, keep: bool) -> None:
    with pytest.raises(OSError, match="No such file"):
        WatchedTask(10, proc=fake.path, keep=keep)


def test_a_thread_stands_for_itself(fake: FakeJob) -> None:
    fake.job(10, ticks=500)
    fake.named_thread(10, 12, "pt_data_pin", ticks=5, wchan="futex_do_wait")
    task = WatchedTask(10, tid=12, proc=fake.path)
    task.read(S)
    fake.named_thread(10, 12, "pt_data_pin", ticks=15, wchan="futex_do_wait")

    reading = task.read(2 * S)

    assert reading is not None
    assert (reading.pid, reading.name, reading.wait) == (12, "pt_data_pin", LOCK)
    assert reading.cpu_frac == pytest.approx(10 * TICK_S)


@pytest.mark.parametrize(
    ("state", "wchan", "wait"),
    [
        ("R", "ep_poll", RUNNING), ("S", "0", OTHER), ("S", "ep_poll", PIPE), ("D", "0", DISK), ("T", "ep_poll", OTHER),
        ("t", "futex_do_wait", OTHER),
    ],
)  # fmt: skip
def test_a_running_or_stopped_task_sleeps_in_nothing(fake: FakeJob, state: str, wchan: str, wait: str) -> None:
    fake.job(10, state=state, wchan=wchan)

    reading = WatchedTask(10, proc=fake.path).read(S)

    assert reading is not None
    assert reading.wait == wait
    assert (reading.wchan is None) == (state in "RTt" or wchan == "0")


def test_files_that_the_kernel_lacks_are_not_measured(fake: FakeJob) -> None:
    fake.job(10, delay_ns=None, io=None)
    (fake.folder / "10/wchan").unlink()

    reading = WatchedTask(10, proc=fake.path).read(S)

    assert reading is not None
    assert (reading.run_delay_frac, reading.read_bytes, reading.read_chars, reading.wchan) == (None, None, None, None)


def test_io_that_is_not_wanted_is_not_read(fake: FakeJob) -> None:
    fake.job(10)

    reading = WatchedTask(10, proc=fake.path, io=False).read(S)

    assert reading is not None
    assert reading.read_bytes is None


@pytest.mark.usefixtures("no_right_to_read_everything")
def test_another_users_counters_are_not_measured(fake: FakeJob) -> None:
    fake.job(10)
    for name in ("io", "wchan"):
        (fake.folder / "10" / name).chmod(0)

    reading = WatchedTask(10, proc=fake.path).read(S)

    assert reading is not None
    assert (reading.read_bytes, reading.wchan) == (None, None)


def test_counters_that_come_late_count_from_then_on(fake: FakeJob) -> None:
    fake.job(10, io=(1, 1, 1))
    fake.write("10/io", "read_bytes: garbage\n")
    task = WatchedTask(10, proc=fake.path)
    first = task.read(S)
    fake.job(10, io=(5, 5, 500))
    second = task.read(2 * S)
    fake.job(10, io=(5, 5, 700))
    third = task.read(3 * S)

    assert [reading.read_bytes if reading else 0 for reading in (first, second, third)] == [None, None, 200]


def test_a_reading_at_a_real_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"],
                          stdout=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        task = WatchedTask(process.pid)
        readings = iter(range(S, 10**6 * S, S))
        reading = until(lambda: task.read(next(readings)), lambda seen: seen is not None and seen.state == "S")
        process.kill()
        process.wait()
        after = task.read(10**7 * S)
        task.close()
        task.close()

    assert reading is not None
    assert reading.wait == (SLEEP if reading.wchan else OTHER)
    assert reading.read_bytes is not None
    assert after is None


def test_a_real_thread_is_read_without_the_others() -> None:
    code = (
        "import threading, time\n"
        "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()\n"
        "print(1, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        whole, main = WatchedTask(process.pid), WatchedTask(process.pid, tid=process.pid)
        whole.read(S), main.read(S)
        before = main.stat.cpu_ticks
        until(lambda: whole.read(2 * S) and whole.stat.cpu_ticks, lambda ticks: bool(ticks) and ticks > before + 20)
        reading = main.read(2 * S)
        process.kill()

    assert reading is not None
    assert whole.stat.cpu_ticks - main.stat.cpu_ticks > 10
