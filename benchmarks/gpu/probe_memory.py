"""Of stage ``probe``: page-locked memory that a forked process writes into, and how fast copies are.

Prints a JSON object for each answer. A driver may mark registered memory as not to be inherited (``VM_DONTCOPY``,
``dc`` in ``VmFlags``): a process that is forked later and writes there ends with SIGSEGV.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu.commands import print_json
from pipetune.loaders.page_locked import locked_array

#: A batch of 64 images as floats.
_BYTES = 64 * 3 * 224 * 224 * 4
_COPIES = 10
#: What the forked process writes: another value in each page.
_PATTERN = np.arange(_BYTES // 4096, dtype=np.uint32).astype(np.uint8).repeat(4096)


def main(device: str) -> None:
    """Fork first: threads that CUDA starts later are not in question here, its context is."""
    torch.zeros(1, device=device)
    index = int(device.partition(":")[2] or 0)
    ours = locked_array((_BYTES,), np.uint8, index)
    try_fork("fork_pipetune", "by pipetune", ours, device, is_ours=True)
    plain = np.frombuffer(mmap.mmap(-1, _BYTES), np.uint8)
    code = int(torch.cuda.cudart().cudaHostRegister(plain.ctypes.data, _BYTES, 1))
    try_fork("fork_plain", f"plainly (code {code})", plain, device, is_ours=False)
    pinned = torch.empty(_BYTES, dtype=torch.uint8).pin_memory()
    pageable = torch.zeros(_BYTES, dtype=torch.uint8)
    for how, source in (
        ("pinned", pinned),
        ("registered", torch.from_numpy(ours)),
        ("pageable", pageable),
    ):
        print_json(name=f"copy_{how}", how=how, gb_per_s=copy_rate(source, device))


def try_fork(name: str, how: str, memory: np.ndarray, device: str, *, is_ours: bool) -> None:
    """Fork a process that writes into the memory, and copy it to the device."""
    flags = read_vm_flags(memory.ctypes.data)
    child = fork_writer(lambda: memory.__setitem__(slice(None), _PATTERN))
    seen = torch.from_numpy(memory).to(device, non_blocking=True).cpu().numpy()
    print_json(
        name=name, how=how, vm_flags=flags, child=child, is_ours=is_ours, device_sees_it=bool((seen == _PATTERN).all())
    )


def fork_writer(write: Callable[[], object]) -> str:
    """``lives``, or the signal that ended the process."""
    pid = os.fork()
    if pid == 0:
        try:
            write()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "lives" if code == 0 else signal.Signals(-code).name if code < 0 else f"exit code {code}"


def read_vm_flags(address: int, smaps: str = "/proc/self/smaps") -> list[str]:
    """The kernel's flags of the mapping that an address is in.

    The file has ``7f1c8a000000-7f1c8c4c0000 rw-s 00000000 00:01 1037 /dev/zero (deleted)`` and, some lines later,
    ``VmFlags: rd wr sh mr mw me ms sd``.
    """
    inside = False
    for line in Path(smaps).read_text().splitlines():
        head = line.split(maxsplit=1)[0] if line else ""
        if "-" in head and not head.endswith(":"):
            low, high = (int(bound, 16) for bound in head.split("-"))
            inside = low <= address < high
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []


def copy_rate(source: torch.Tensor, device: str) -> float:
    """Copies to the device (GB/s), after one that is not timed."""
    target = torch.empty_like(source, device=device)
    target.copy_(source, non_blocking=True)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(_COPIES):
        target.copy_(source, non_blocking=True)
    end.record()
    end.synchronize()
    took_s = 1e-3 * float(begin.elapsed_time(end))
    return _COPIES * source.nbytes / took_s / 1e9 if took_s > 0 else 0.0


if __name__ == "__main__":
    main(sys.argv[1])
