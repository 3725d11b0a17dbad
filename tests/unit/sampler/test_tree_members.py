"""Which processes belong to a tree, and how often it looks for new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.machine import proc
from tests.fakes import Clock
from tests.unit.machine.fake_proc import FakeProc
from tests.unit.sampler.trees import reader_of


def test_a_child_is_found_at_the_next_rescan_and_not_before(fake: FakeProc, clock: Clock) -> None:
    fake.process(10)
    reader = reader_of(fake, clock)
    reader.read()
    fake.process(11, 10, ticks=7)
    fake.process(12, 11, ticks=1)

    clock.sleep(0.1)
    before = reader.read()
    clock.sleep(0.4)
    after = reader.read()

    assert before is not None
    assert after is not None
    assert (before.processes, after.processes) == (1, 3)
    assert after.cpu_s == pytest.approx(8 * proc.TICK_S)


def test_no_rescan_while_no_pid_was_given_out(fake: FakeProc, clock: Clock) -> None:
    fake.machine(newest_pid=500)
    fake.process(10)
    reader = reader_of(fake, clock)
    reader.read()
    clock.sleep(0.5)
    reader.read()
    fake.process(11, 10)

    counts = []
    for newest_pid in (500, 500, 501):
        fake.machine(newest_pid=newest_pid)
        clock.sleep(0.5)
        reading = reader.read()
        assert reading is not None
        counts.append(reading.processes)

    assert counts == [1, 1, 2]


def test_a_rescan_is_made_every_two_seconds_all_the_same(fake: FakeProc, clock: Clock) -> None:
    fake.machine(newest_pid=500)
    fake.process(10)
    reader = reader_of(fake, clock)
    reader.read()
    clock.sleep(0.5)
    reader.read()
    fake.process(11, 10)

    counts = []
    for _ in range(4):
        clock.sleep(0.5)
        reading = reader.read()
        assert reading is not None
        counts.append(reading.processes)

    assert counts == [1, 1, 1, 2]


def test_a_scan_opens_each_stranger_once(tmp_path: Path, clock: Clock) -> None:
    fake = FakeProc(tmp_path, children_files=False)
    fake.process(10)
    fake.process(99, 1)
    reader = reader_of(fake, clock)
    reader.read()

    fake.process(99, 10)  # cannot happen, and shows whether it was read
    fake.process(11, 10)
    clock.sleep(0.5)
    once_seen = reader.read()
    fake.end(99)
    clock.sleep(0.5)
    reader.read()
    fake.process(99, 10)
    clock.sleep(0.5)
    seen_anew = reader.read()

    assert once_seen is not None
    assert seen_anew is not None
    assert (once_seen.processes, seen_anew.processes) == (2, 3)


def test_a_process_is_followed_when_its_parent_ends_first(fake: FakeProc, clock: Clock) -> None:
    fake.process(10)
    fake.process(11, 10)
    fake.process(12, 11, ticks=5)
    reader = reader_of(fake, clock)
    reader.read()

    fake.end(11)
    fake.process(12, 1, ticks=9)
    clock.sleep(0.5)
    reading = reader.read()

    assert reading is not None
    assert reading.processes == 2
    assert reading.cpu_s == pytest.approx(9 * proc.TICK_S)


def test_a_pid_that_is_used_again_is_another_process(fake: FakeProc, clock: Clock) -> None:
    fake.process(10)
    fake.process(11, 10, ticks=30, start=100)
    reader = reader_of(fake, clock)
    reader.read()

    fake.process(11, 10, ticks=2, start=700)
    at_once = reader.read()
    clock.sleep(0.5)
    later = reader.read()

    assert at_once is not None
    assert later is not None
    assert at_once.processes == 1
    assert at_once.cpu_s == pytest.approx(30 * proc.TICK_S)
    assert later.processes == 2
    assert later.cpu_s == pytest.approx(32 * proc.TICK_S)


def test_a_stranger_with_the_roots_pid_is_not_taken_for_it(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, start=100)
    reader = reader_of(fake, clock)
    reader.read()

    fake.process(10, start=200)
    fake.process(11, 10)
    clock.sleep(0.5)

    assert reader.read() is None
    clock.sleep(0.5)
    assert reader.read() is None


def test_nothing_before_the_root_exists_and_after_everything_ended(fake: FakeProc, clock: Clock) -> None:
    fake.process(99, 1)
    reader = reader_of(fake, clock)
    before = reader.read()
    fake.process(10, ticks=3)
    clock.sleep(0.5)
    alive = reader.read()
    fake.end(10)

    assert before is None
    assert alive is not None
    assert reader.read() is None


def test_children_that_outlive_the_root_are_still_the_tree(fake: FakeProc, clock: Clock) -> None:
    fake.process(10, ticks=4)
    fake.process(11, 10, ticks=3)
    reader = reader_of(fake, clock)
    reader.read()

    fake.end(10)
    reading = reader.read()

    assert reading is not None
    assert reading.processes == 1
    assert reading.cpu_s == pytest.approx(7 * proc.TICK_S)


def test_a_process_not_yet_waited_for_counts_no_longer_but_its_counters_do(fake: FakeProc, clock: Clock) -> None:
    fake.process(10)
    fake.process(11, 10, ticks=3, state="Z", rss_pages=0)

    reading = reader_of(fake, clock).read()

    assert reading is not None
    assert reading.processes == 1
    assert reading.cpu_s == pytest.approx(3 * proc.TICK_S)
