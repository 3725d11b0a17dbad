from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.machine.proc import IoCounters, SchedStat
from pipetune.sampler.task_files import TaskFiles
from tests.unit.machine.fake_proc import FakeProc


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path)
    fake.process(10, ticks=5, start=7, delay_ns=300, switches=4, read_bytes=4096)
    fake.write("10/wchan", "ep_poll")
    return fake


@pytest.mark.parametrize("keep", [False, True])
def test_what_is_asked_for_is_read(fake: FakeProc, keep: bool) -> None:
    files = TaskFiles(f"{fake.path}/10", keep=keep, wchan=True)
    stat, io = files.stat(), files.io()

    assert stat == files.first_stat
    assert stat is not None
    assert (stat.cpu_ticks, stat.start_ticks) == (5, 7)
    assert files.schedstat() == SchedStat(run_delay_ns=300, switches=4)
    assert files.wchan() == b"ep_poll"
    assert io is not None
    assert io.read_bytes == 4096
    files.close()
    files.close()


def test_what_is_not_asked_for_is_not_read(fake: FakeProc) -> None:
    files = TaskFiles(f"{fake.path}/10", keep=True, schedstat=False, io=False)

    assert (files.schedstat(), files.wchan(), files.io()) == (None, None, None)


def test_no_such_task(fake: FakeProc) -> None:
    with pytest.raises(OSError, match="No such file"):
        TaskFiles(f"{fake.path}/99", keep=True)
    fake.write("10/stat", "cut short")
    with pytest.raises(ValueError, match=r"cut short|not found"):
        TaskFiles(f"{fake.path}/10", keep=True)


def test_a_number_that_is_used_again_is_another_task(fake: FakeProc) -> None:
    files = TaskFiles(f"{fake.path}/10", keep=False)
    fake.process(10, ticks=5, start=8)

    assert files.stat() is None


def test_a_task_that_has_ended_has_no_stat(fake: FakeProc) -> None:
    files = TaskFiles(f"{fake.path}/10", keep=False)
    fake.end(10)

    assert files.stat() is None
    assert files.schedstat() is None


def test_an_unknown_form_is_nothing_this_time(fake: FakeProc) -> None:
    files = TaskFiles(f"{fake.path}/10", keep=True)
    fake.write("10/io", "read_bytes: many\n")
    assert files.io() is None
    fake.write("10/io", "read_bytes: 5\n")

    assert files.io() == IoCounters(read_bytes=5)


def test_a_file_that_cannot_be_read_is_not_asked_again(fake: FakeProc) -> None:
    files = TaskFiles(f"{fake.path}/10", keep=False)
    io = Path(fake.path, "10", "io")
    io.unlink()
    assert files.io() is None
    io.write_text("read_bytes: 5\n")

    assert files.io() is None
