from __future__ import annotations

import mmap
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
    found = memory.tree_bytes(None)
    assert found is not None
    assert found > 1 << 20
