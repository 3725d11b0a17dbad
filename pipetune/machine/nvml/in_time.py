"""Opens a GPU within a limited time: a driver that hangs must not hang who asks, and not keep Ctrl-C from them.

The call is made in a thread, which is left behind where it does not return. Whether NVML answers at all is asked by a
process instead: see :mod:`pipetune.machine.nvml.gpu_state`.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

from pipetune.machine.nvml.gpu import Gpu, NvmlUnavailable, open_gpu

#: NVML takes up to two seconds to start on a machine with many GPUs.
_LIMIT_S = 10.0


def open_gpu_in_time(uuid: str | None, limit_s: float = _LIMIT_S) -> Gpu:
    """As :func:`pipetune.machine.nvml.gpu.open_gpu`, within ``limit_s`` (s).

    Raises:
        NvmlUnavailable: no binding, library, driver, permission or such GPU, or no answer within ``limit_s``.
    """
    answers: queue.SimpleQueue[Gpu | Exception] = queue.SimpleQueue()
    given_up = threading.Event()

    def ask() -> None:
        try:
            gpu = open_gpu(uuid=uuid)
        except Exception as error:
            answers.put(error)
            return
        answers.put(gpu)
        if given_up.is_set():
            gpu.close()

    try:
        threading.Thread(target=ask, name="pipetune-nvml", daemon=True).start()
    except RuntimeError as error:
        raise NvmlUnavailable(f"no thread that asks NVML can be started: {error}", reason="nvml_error") from error
    try:
        answer = answers.get(timeout=limit_s)
    except BaseException as error:  # also Ctrl-C, in a program that goes on
        given_up.set()
        with contextlib.suppress(queue.Empty):  # it may have come just now
            late = answers.get_nowait()
            if not isinstance(late, Exception):
                late.close()
        if not isinstance(error, queue.Empty):
            raise
        raise NvmlUnavailable(
            f"NVML did not answer within {limit_s:g} s", reason="no_answer",
            hint="run nvidia-smi; where that hangs, too, reset the GPU's driver or reboot the machine",
        ) from None  # fmt: skip
    if isinstance(answer, Exception):
        raise answer
    return answer


def call_in_time(call: Callable[[], object], limit_s: float = _LIMIT_S) -> None:
    """Make a call that asks the driver something, and leave it behind where it has not returned within ``limit_s`` (s).

    Where no thread can be started, the call is not made.
    """
    thread = threading.Thread(target=call, name="pipetune-nvml", daemon=True)
    with contextlib.suppress(RuntimeError):
        thread.start()
        thread.join(limit_s)
