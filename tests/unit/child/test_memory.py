from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="what is tested asks torch")

from pipetune.child import memory  # noqa: E402

SMAPS = """\
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
Size:               1024 kB
Rss:                 512 kB
Pss:                 256 kB
VmFlags: rd wr mr mw me ac sd
7f0000200000-7f0000300000 rw-s 00000000 00:05 123                        /dev/nvidiactl
Size:               1024 kB
Rss:                   0 kB
"""


def test_what_is_resident_of_a_mapping() -> None:
    assert memory.resident_at(0x7F0000000000, SMAPS) == 512 << 10
    assert memory.resident_at(0x7F00000FFFFF, SMAPS) == 512 << 10
    assert memory.resident_at(0x7F0000100000, SMAPS) == 0
    assert memory.resident_at(0x7F0000280000, SMAPS) == 0


def test_the_kernel_writes_it_so() -> None:
    touched = np.frombuffer(mmap.mmap(-1, 8 << 20), np.uint8)
    touched[:] = 1
    smaps = Path("/proc/self/smaps").read_text()
    assert memory.resident_at(touched.ctypes.data, smaps) >= 8 << 20


@pytest.mark.parametrize(("resident", "expected"), [(0, 3 << 30), (1 << 20, 0)])
def test_page_locked_memory_that_pss_leaves_out_is_added(
    resident: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "host_memory_stats", lambda: {"allocated_bytes.current": 3 << 30})
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(memory, "resident_at", lambda *_: resident)
    assert memory.uncounted_bytes() == expected


def test_without_cuda_nothing_is_added() -> None:
    assert memory.uncounted_bytes() == 0
    found = memory.tree_bytes(())
    assert found is not None
    assert found > 1 << 20


def test_what_a_fork_server_holds_for_others_is_counted() -> None:
    rollup = """\
562d9656a000-7ffd85b8e000 ---p 00000000 00:00 0                          [rollup]
Rss:              500000 kB
Pss:              260000 kB
Private_Clean:     75000 kB
Private_Dirty:      1400 kB
"""
    assert memory.held_for_forks(rollup) == (260000 - 1400) << 10


def test_a_forks_memory_is_that_of_a_new_process() -> None:
    """A hundred megabytes that a server has: its fork has them, too, and another process has not."""
    server = (
        "import os, sys, mmap; data = bytearray(os.urandom(1 << 20)) * 100\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    from pipetune.child.memory import tree_bytes\n"
        "    print(tree_bytes([]), tree_bytes([os.getppid()]), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", server], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        without, with_server = map(int, process.stdout.readline().split())
        assert with_server - without > 50 << 20
        assert with_server > 100 << 20
        me = memory.tree_bytes(())
        beside = memory.tree_bytes((process.pid, 1 << 30))  # and one that has ended
        assert me is not None
        assert beside is not None
        assert abs(beside - me) < 50 << 20
    finally:
        process.communicate()
