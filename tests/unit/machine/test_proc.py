from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipetune.machine import proc
from tests.unit.machine.fake_proc import FakeProc

STAT = (
    b"4242 (pt_main) (x) S) D 41 4242 4242 0 -1 4194304 1234 99 5 6 300 45 70 80 20 0 17 0 98765 1234567890 2500 "
    b"18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A real process with a real child, both asleep."""
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        yield process
        for pid in reversed(proc.tree_pids(process.pid)):
            os.kill(pid, 9)


def test_counts_the_fields_of_stat_from_the_last_parenthesis() -> None:
    stat = proc.parse_process_stat(STAT)

    assert stat == proc.ProcessStat(
        state="D",
        parent=41,
        minor_faults=1234,
        cpu_ticks=345,
        threads=17,
        start_ticks=98765,
        rss_bytes=2500 * os.sysconf("SC_PAGE_SIZE"),
        waited_ticks=150,
    )


@pytest.mark.parametrize("text", [b"", b"1 (python) S 1 2", b"no process"])
def test_a_stat_cut_short_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut short|subsection"):
        proc.parse_process_stat(text)


def test_schedstat_gives_waiting_time_and_switches() -> None:
    assert proc.parse_sched_stat(b"16515764 19399875 128\n") == proc.SchedStat(run_delay_ns=19399875, switches=128)


def test_status_gives_both_kinds_of_context_switches() -> None:
    text = b"Name:\tx\nvoluntary_ctxt_switches:\t126\nnonvoluntary_ctxt_switches:\t2\n"

    assert proc.parse_context_switches(text) == 128
    assert proc.parse_context_switches(b"Name:\tx\n") is None


def test_io_counters_are_read_by_name() -> None:
    text = b"rchar: 11\nwchar: 22\nsyscr: 1\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 4\ncancelled_write_bytes: 0\n"

    assert proc.parse_io(text) == proc.IoCounters(read_chars=11, write_chars=22, read_bytes=4096)
    assert proc.parse_io(b"") == proc.IoCounters()
    assert proc.parse_io(b"rchar: 5\nnonsense\n") == proc.IoCounters(read_chars=5)


@pytest.mark.parametrize("probe", [False, True])
def test_a_file_that_cannot_be_opened_is_not_kept(tmp_path: Path, probe: bool) -> None:
    assert proc.open_kept(str(tmp_path / "absent"), probe=probe) is None


def test_a_probe_finds_what_can_be_opened_but_not_read(tmp_path: Path) -> None:
    assert proc.open_kept(str(tmp_path)) is not None
    assert proc.open_kept(str(tmp_path), probe=True) is None


def test_the_tree_is_listed_parents_first(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    for pid, parent in ((10, 1), (11, 10), (12, 10), (13, 12), (20, 1)):
        fake.process(pid, parent)

    assert proc.tree_pids(10, fake.path) == [10, 11, 12, 13]
    assert proc.tree_pids(999, fake.path) == []


def test_children_of_every_thread_are_found(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.process(10)
    fake.process(12, 3)
    fake.thread(10, 11, delay_ns=0, switches=0)
    fake.write("10/task/11/children", "12 ")

    assert proc.tree_pids(10, fake.path) == [10, 12]
    assert proc.read_children(10, fake.path, threads=1) == []


def test_a_child_is_listed_once_however_often_it_is_named(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.process(10)
    fake.process(12, 10)
    fake.thread(10, 11, delay_ns=0, switches=0)
    fake.write("10/task/11/children", "12 ")
    fake.write("12/task/12/children", "10 ")

    assert proc.tree_pids(10, fake.path) == [10, 12]


def test_without_children_files_the_parents_of_all_are_read(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path, children_files=False)
    for pid, parent in ((10, 1), (11, 10), (12, 11), (20, 1)):
        fake.process(pid, parent)

    assert proc.read_children(10, fake.path) is None
    assert proc.tree_pids(10, fake.path) == [10, 11, 12]


def test_a_process_that_is_gone_has_no_children(tmp_path: Path) -> None:
    assert proc.read_children(10, str(tmp_path)) == []


@pytest.mark.parametrize("keep", [True, False])
def test_a_kept_file_shows_its_present_content(tmp_path: Path, keep: bool) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    file = proc.KeptFile(str(path), keep=keep)

    first = file.read()
    path.write_text("three")

    assert (first, file.read()) == (b"one", b"three")
    file.close()
    file.close()


def test_a_kept_file_reads_no_more_than_its_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x" * 100)
    file = proc.KeptFile(str(path), 10)

    assert file.read() == b"x" * 10
    file.close()


def test_reads_real_processes(sleeper: subprocess.Popen[bytes]) -> None:
    assert sleeper.stdout is not None
    child = int(sleeper.stdout.readline())
    deadline = time.monotonic() + 30
    # Between fork and exec it is there already, with no memory of its own.
    while not (early := proc.read_process_stat(child)) or early.rss_bytes == 0:
        assert time.monotonic() < deadline

    assert proc.tree_pids(sleeper.pid) == [sleeper.pid, child]
    stat = proc.read_process_stat(child)
    assert stat is not None
    assert (stat.parent, stat.threads) == (sleeper.pid, 1)
    assert stat.rss_bytes > 0


def test_children_files_and_scan_agree_on_a_real_tree(sleeper: subprocess.Popen[bytes]) -> None:
    assert sleeper.stdout is not None
    child = int(sleeper.stdout.readline())

    assert proc.scan_children()[sleeper.pid] == [child]
    assert proc.read_children(sleeper.pid) in ([child], None)


def test_timeslices_are_the_context_switches_of_status() -> None:
    code = "import time\nfor _ in range(20): time.sleep(0.001)\nprint('done', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while proc.read_process_stat(process.pid).state != "S":  # type: ignore[union-attr]
            time.sleep(0.001)
        sched = proc.read_once(f"/proc/{process.pid}/schedstat")
        status = proc.read_once(f"/proc/{process.pid}/status")
        process.kill()

    if not sched:
        pytest.skip("this kernel keeps no schedstat")
    assert proc.parse_sched_stat(sched).switches == proc.parse_context_switches(status or b"")


def test_nothing_is_read_of_a_process_that_does_not_exist() -> None:
    assert proc.read_process_stat(2**22 + 1) is None
    assert proc.tree_pids(2**22 + 1) == []


def test_own_cpu_time_counts_children_that_have_ended() -> None:
    before, before_children = proc.own_cpu_s(), proc.ended_children_cpu_s()
    subprocess.run([sys.executable, "-c", "[None for _ in range(10**6)]"], check=True)

    used_by_child = proc.ended_children_cpu_s() - before_children
    assert used_by_child > 0
    assert proc.own_cpu_s() - before >= used_by_child
