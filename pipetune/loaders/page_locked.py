"""Page-locked memory for batches: a CUDA device copies from it while the training loop goes on.

Why not torch's (``pin_memory=True``): loader processes cannot write into it, so each batch would be copied once more,
in the training loop; and a block of it is a power of two, 64 MiB for a batch of 64 x 3 x 224 x 224 floats, which has
37. But torch knows on which streams copies from its own are queued. For this there is
:mod:`pipetune.loaders.after_copies`.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import warnings
import weakref
from typing import Any

import numpy as np
import torch

from pipetune.decoders.contract import Array
from pipetune.units import format_bytes

#: ``cudaHostRegisterPortable``: page-locked for every device, not only for the one that is current.
_PORTABLE = 1
#: ``MADV_DOFORK`` of madvise(2).
_DO_FORK = 11


def locked_array(shape: tuple[int, ...], dtype: Any, device_index: int) -> Array:
    """Memory of this process, page-locked where that is possible.

    It is shared with processes that are forked: in private memory a fork makes the next write go to another page than
    the one that the device reads.
    """
    dtype = np.dtype(dtype)
    memory: Array = np.frombuffer(mmap.mmap(-1, int(np.prod(shape)) * dtype.itemsize), np.uint8)
    page_lock(memory, device_index)
    array: Array = memory.view(dtype).reshape(shape)
    return array


def page_lock(memory: Array, device_index: int) -> bool:
    """Page-lock memory until the array is garbage; where it cannot be, warn and leave it as it is.

    Processes that are forked later can write into the memory, whatever the driver does to page-locked memory.

    Args:
        memory: an array that does not own its memory, so that all of its views refer to it. The memory is a shared
            mapping (``MAP_SHARED``).
        device_index: of the CUDA device that will copy from it.
    """
    address, size = memory.ctypes.data, memory.nbytes
    with torch.cuda.device(device_index):
        problem = _register(address, size)
        if problem is not None:
            # The runtime keeps the error until it is asked for it, which torch does after the next kernel.
            with contextlib.suppress(RuntimeError):
                torch.ones(1, device="cuda")
            warnings.warn(
                f"cannot page-lock {format_bytes(size)} for batches ({problem}), so copies to the GPU take longer: "
                "lower num_workers or prefetch",
                stacklevel=2,
            )
    release = weakref.finalize(memory, _release, os.getpid(), address if problem is None else None, device_index)
    release.atexit = False  # the memory goes with the process
    return problem is None


def _register(address: int, size: int) -> str | None:
    """Page-lock memory on the current device; returns why that is impossible, and ``None`` where it is done."""
    runtime = torch.cuda.cudart()
    code = runtime.cudaHostRegister(address, size, _PORTABLE)
    if int(code):
        return str(runtime.cudaGetErrorString(code))
    if (problem := _let_forks_inherit(address, size)) is not None:
        runtime.cudaHostUnregister(address)
    return problem


def _let_forks_inherit(address: int, size: int) -> str | None:
    """Undo ``MADV_DONTFORK`` on all pages of a range; returns why that is impossible, and ``None`` where it is done.

    Why: a driver may exclude page-locked memory from forks (AMD's runtime does), because a fork makes the next write to
    a private mapping go to another page than the one that the device reads. A forked loader process that writes into
    memory that it has not inherited ends with a segmentation fault. A shared mapping keeps its pages, so every process
    may inherit it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    first = address - address % mmap.PAGESIZE
    length = ctypes.c_size_t(address + size - first)
    if libc.madvise(ctypes.c_void_p(first), length, _DO_FORK) == 0:
        return None
    return f"forked processes cannot inherit it: {os.strerror(ctypes.get_errno())}"


def _release(pid: int, address: int | None, device_index: int) -> None:
    """Before memory is unmapped: wait for the copies from it, and unlock it."""
    if os.getpid() != pid:  # a forked process has no CUDA
        return
    wait_for_devices(device_index)
    if address is not None:
        with contextlib.suppress(RuntimeError), torch.cuda.device(device_index):
            torch.cuda.cudart().cudaHostUnregister(address)


def wait_for_devices(device_index: int) -> None:
    """Wait for all work that this process has queued."""
    with contextlib.suppress(RuntimeError):  # a lost device reads nothing any more, and the training loop was told
        for index in devices_in_use(device_index):
            torch.cuda.synchronize(index)


def devices_in_use(device_index: int) -> list[int]:
    """The CUDA devices on which this process may have queued work: those with a context."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return sorted({device_index, torch.cuda.current_device()})
    return [index for index in range(torch.cuda.device_count()) if has_context(index)]
