from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from pipetune.machine.parents import Parents
from pipetune.machine.proc import tree_pids
from tests.unit.machine.fake_proc import FakeProc


def test_children_are_those_of_now(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    for pid, parent in ((1, 0), (10, 1), (11, 10), (12, 11)):
        fake.process(pid, parent)
    known = Parents(fake.path)

    assert known.children() == {0: [1], 1: [10], 10: [11], 11: [12]}
    fake.end(12)
    fake.process(13, 10)
    assert known.children() == {0: [1], 1: [10], 10: [11, 13]}
    assert tree_pids(10, fake.path, children=known.children()) == [10, 11, 13]


def test_each_process_is_read_once(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    for pid, parent in ((1, 0), (10, 1), (11, 10)):
        fake.process(pid, parent)
    known = Parents(fake.path)
    known.children()
    fake.process(11, 1)  # what is known already is not asked for again

    assert known.children()[10] == [11]


def test_an_orphan_has_the_parent_that_took_it(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    for pid, parent in ((1, 0), (10, 1), (11, 10), (12, 11)):
        fake.process(pid, parent)
    known = Parents(fake.path)
    known.children()
    fake.process(12, 10)
    fake.end(11)

    assert known.children()[10] == [12]


def test_a_process_that_ends_during_the_reading_is_left_out(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.process(10, 1)
    (tmp_path / "11").mkdir()

    assert Parents(fake.path).children() == {1: [10]}


def test_real_children_of_any_thread_are_found() -> None:
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(
        target=lambda: started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
    )
    thread.start()
    thread.join()
    (child,) = started

    found = Parents().children()
    child.communicate(b"\n")

    assert child.pid in found[os.getpid()]
