from __future__ import annotations

from pipetune.sampler.tree import TreeReader
from tests.fakes import Clock
from tests.unit.machine.fake_proc import FakeProc


def reader_of(fake: FakeProc, clock: Clock, pid: int = 10) -> TreeReader:
    """Of the process and its descendants."""
    return TreeReader(pid, proc=fake.path, clock=clock)
