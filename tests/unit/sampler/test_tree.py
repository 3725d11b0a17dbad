from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pipetune.machine import proc
from pipetune.sampler import tree
from pipetune.sampler.tree import TreeReader
from tests.fakes import Clock
from tests.unit.machine.fake_proc import FakeProc
from tests.unit.sampler.trees import reader_of

PAGE = os.sysconf("SC_PAGE_SIZE")


def test_sums_a_process_and_its_descendants(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, ticks=100, faults=5, rss_pages=2, delay_ns=10**9, switches=3, read_bytes=4096)
    fake.process(11, 10, ticks=50, faults=1, rss_pages=3, delay_ns=5 * 10**8, switches=4, read_bytes=8192, state="D")
    fake.process(12, 11, ticks=25, name="odd) (name", state="D")
    fake.process(99, 1, ticks=10_000, state="D")

    reading = reader_of(fake, clock).read()

    assert reading is not None
    assert reading.processes == 3
    assert reading.cpu_s == pytest.approx(175 * proc.TICK_S)
    assert reading.run_delay_s == pytest.approx(1.5)
    assert reading.minor_faults == 6
    assert reading.context_switches == 7
    assert reading.read_bytes == 12288
    assert reading.rss_bytes == 15 * PAGE
    assert reading.in_disk_sleep == 2


def test_counters_of_those_that_ended_stay_in_the_sums(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, ticks=10, switches=1)
    fake.process(11, 10, ticks=30, faults=9, delay_ns=10**9, switches=8, read_bytes=512, rss_pages=50)
    reader = reader_of(fake, clock)
    reader.read()

    fake.end(11)
    reading = reader.read()

    assert reading is not None
    assert (reading.processes, reading.rss_bytes) == (1, 10 * PAGE)
    assert reading.cpu_s == pytest.approx(40 * proc.TICK_S)
    assert (reading.minor_faults, reading.context_switches, reading.read_bytes) == (9, 9, 512)
    assert reading.run_delay_s == pytest.approx(1.0)


def test_the_time_of_processes_too_short_lived_to_be_seen_comes_from_their_parents(
    fake: FakeProc, clock: Clock
) -> None:
    fake.process(10, ticks=10, waited=100)
    reader = reader_of(fake, clock)
    before = reader.read()
    fake.process(10, ticks=12, waited=140)
    reading = reader.read()
    again = reader.read()

    assert before is not None
    assert reading is not None
    assert again is not None
    assert before.cpu_s == pytest.approx(10 * proc.TICK_S)  # what was waited for before is not of this measurement
    assert reading.cpu_s == again.cpu_s == pytest.approx(52 * proc.TICK_S)


@pytest.mark.parametrize("waits_late", [False, True])
def test_the_time_of_a_process_is_counted_once_when_its_parent_has_waited_for_it(
    fake: FakeProc, clock: Clock, waits_late: bool
) -> None:
    fake.process(10, ticks=10)
    fake.process(11, 10, ticks=30)
    fake.process(12, 11, ticks=20, waited=15)
    reader = reader_of(fake, clock)
    reader.read()

    # 11 and 12 end between two readings: 11 had waited for 12, and 10 for both, when they had used 5 and 3 more.
    total = 30 + 5 + (20 + 3 + 15)
    fake.end(12)
    fake.end(11)
    fake.process(10, ticks=10, waited=0 if waits_late else total)
    reader.read()
    fake.process(10, ticks=10, waited=total)
    reading = reader.read()

    assert reading is not None
    assert reading.cpu_s == pytest.approx((10 + 35 + 23) * proc.TICK_S)


def test_a_process_that_began_in_the_tree_brings_all_that_it_has_waited_for(fake: FakeProc, clock: Clock) -> None:
    fake.process(10)
    reader = reader_of(fake, clock)
    reader.read()
    clock.sleep(0.5)
    fake.process(11, 10, ticks=4, waited=50)

    reading = reader.read()

    assert reading is not None
    assert reading.cpu_s == pytest.approx(54 * proc.TICK_S)


def test_real_processes_that_live_for_a_moment_are_in_the_sum() -> None:
    code = (
        "import os, sys, time\n"
        "sys.stdin.readline()\n"
        "for _ in range(12):\n"
        "    if not os.fork():\n"
        "        while time.process_time() < 0.05: pass\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "print(sum(os.times()[:4]), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        reader = TreeReader(process.pid)
        reader.read()
        process.stdin.write(b"\n")
        process.stdin.flush()
        own_s = float(process.stdout.readline())
        reading = reader.read()
        reader.close()

    assert reading is not None
    assert own_s > 0.5
    assert reading.cpu_s == pytest.approx(own_s, abs=0.05)


def test_read_bytes_are_read_twice_a_second_and_repeated_in_between(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, read_bytes=100)
    reader = reader_of(fake, clock)
    seen = []
    for tick in range(7):
        fake.process(10, read_bytes=100 + tick, ticks=tick)
        reading = reader.read()
        assert reading is not None
        seen.append((round(reading.cpu_s / proc.TICK_S), reading.read_bytes))
        clock.sleep(0.1)

    assert seen == [(0, 100), (1, 100), (2, 100), (3, 100), (4, 100), (5, 105), (6, 105)]


def test_threads_wait_and_switch_too_and_stay_in_the_sums(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, threads=3, delay_ns=1, switches=10)
    fake.thread(10, 20, delay_ns=20, switches=2)
    fake.thread(10, 21, delay_ns=300, switches=5)
    reader = reader_of(fake, clock)
    reader.read()
    three = reader.read()

    fake.end_thread(10, 21)
    fake.thread(10, 20, delay_ns=4, switches=1)  # the number of one that ended, given to a new one
    clock.sleep(0.5)
    reader.read()
    after = reader.read()

    assert three is not None
    assert after is not None
    assert (three.run_delay_s, three.context_switches) == (pytest.approx(321e-9), 17)
    assert (after.run_delay_s, after.context_switches) == (pytest.approx(325e-9), 18)


def test_many_threads_are_read_less_often(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, threads=130)
    fake.thread(10, 20, delay_ns=0, switches=1)
    reader = reader_of(fake, clock)
    seen = []
    for number in range(5):
        fake.thread(10, 20, delay_ns=0, switches=1 + number)
        reader.read()
        reading = reader.read()
        assert reading is not None
        seen.append(reading.context_switches)
        clock.sleep(0.5)

    assert seen == [1, 1, 1, 4, 4]


def test_without_schedstat_there_are_switches_and_no_delay(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, delay_ns=None)
    fake.write("10/status", "voluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n")

    reading = reader_of(fake, clock).read()

    assert reading is not None
    assert (reading.run_delay_s, reading.context_switches) == (None, 42)


def test_unreadable_bytes_are_none_and_readable_ones_are_summed(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, read_bytes=None)
    reader = reader_of(fake, clock)
    alone = reader.read()
    fake.process(11, 10, read_bytes=77)
    clock.sleep(0.5)
    both = reader.read()

    assert alone is not None
    assert both is not None
    assert (alone.read_bytes, both.read_bytes) == (None, 77)


def test_io_that_may_be_opened_but_not_read_is_none(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, read_bytes=None)
    (fake.folder / "10" / "io").mkdir()  # reading a folder is an OSError, as reading another user's io is

    reading = reader_of(fake, clock).read()

    assert reading is not None
    assert reading.read_bytes is None
    assert reading.processes == 1


def test_more_processes_than_files_may_stay_open(fake: FakeProc, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_MAX_KEPT", 2)
    for pid in range(10, 16):
        fake.process(pid, 10 if pid > 10 else 1, ticks=1)
    before = len(os.listdir("/proc/self/fd"))
    reader = reader_of(fake, clock)
    reader.read()
    kept = len(os.listdir("/proc/self/fd")) - before
    for pid in range(10, 16):
        fake.process(pid, 10 if pid > 10 else 1, ticks=3)
    fake.end(15)

    reading = reader.read()

    assert reading is not None
    assert kept == 2 * 3
    assert reading.processes == 5
    assert reading.cpu_s == pytest.approx((5 * 3 + 1) * proc.TICK_S)
    reader.close()


def test_close_leaves_no_file_open(fake: FakeProc, clock: Clock) -> None:
    for pid in range(10, 16):
        fake.process(pid, 10 if pid > 10 else 1)
    before = len(os.listdir("/proc/self/fd"))
    reader = reader_of(fake, clock)
    reader.read()
    fake.end(15)
    reader.read()
    reader.close()
    reader.close()

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_real_tree_whose_sums_never_fall() -> None:
    code = """
import os, subprocess, sys
worker = "import sys; x = 0\\nfor _ in range(2_000_000): x += 1\\nprint(flush=True); sys.stdin.read()"
workers = [subprocess.Popen([sys.executable, "-c", worker], stdin=-1, stdout=-1) for _ in range(2)]
for w in workers: w.stdout.readline()
print("busy", flush=True); sys.stdin.readline()
workers[0].kill(); workers[0].wait()
print("one ended", flush=True); sys.stdin.readline()
workers[1].kill(); workers[1].wait()
"""
    clock = Clock()
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        reader = TreeReader(process.pid, clock=clock)
        three = reader.read()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        clock.sleep(0.5)
        two = reader.read()
        process.stdin.close()
        process.wait()
        none = reader.read()
        reader.close()

    assert three is not None
    assert two is not None
    assert none is None
    assert (three.processes, two.processes) == (3, 2)
    assert three.cpu_s > 0.02
    assert two.cpu_s >= three.cpu_s
    assert two.minor_faults >= three.minor_faults > 100
    assert (two.context_switches or 0) >= (three.context_switches or 0) > 0
    assert 0 < two.rss_bytes < three.rss_bytes
