"""All NVML calls about one GPU: their cost, which ones this GPU lacks, and whether it is lost.

NVML has some thirty error codes. A sampler needs to know which of four things to do, so the codes are sorted once, by
their meaning in nvml.h:

- *never*: this GPU, driver or user cannot have it. The call is not made again.
- *not now*: nothing new, or a passing shortage. The value is missing in this reading only.
- *lost*: the GPU or the driver is gone. No more calls are made.
- *unclear* (``UNKNOWN`` and whatever newer drivers add): lost when this call had worked before, as after a
  ``systemctl daemon-reload`` that takes a container's access away; otherwise never, since some drivers answer so
  instead of "not supported".

Why not nvitop: its wrappers make neither the calls for utilisation samples nor those for SM activity (GPM).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_NEVER = (
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
)
_NOT_NOW = (
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_INSUFFICIENT_SIZE",
    "NVML_ERROR_TIMEOUT",
    "NVML_ERROR_IN_USE",
    "NVML_ERROR_MEMORY",
    "NVML_ERROR_NO_DATA",
    "NVML_ERROR_INSUFFICIENT_RESOURCES",
    "NVML_ERROR_NOT_READY",
    "NVML_ERROR_INVALID_STATE",
)
_LOST = (
    "NVML_ERROR_UNINITIALIZED",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    "NVML_ERROR_GPU_NOT_FOUND",
)


class Calls:
    """Makes NVML calls and never raises.

    Args:
        library: the imported ``pynvml``.
        timer: s; measures the calls.
        cpu_timer: s; measures the CPU time of the thread that makes them.
    """

    def __init__(
        self,
        library: Any,
        timer: Callable[[], float] = time.perf_counter,
        cpu_timer: Callable[[], float] = time.thread_time,
    ) -> None:
        self._library, self._timer, self._cpu_timer = library, timer, cpu_timer
        self._worked: set[str] = set()
        self._cost_s: dict[str, tuple[int, float]] = {}
        self._sorted = {
            getattr(library, name): fate
            for fate, names in (("never", _NEVER), ("not now", _NOT_NOW), ("lost", _LOST))
            for name in names
            if hasattr(library, name)  # older releases of the binding know fewer codes
        }
        self.total_s = 0.0
        """Wall time of all calls so far (s)."""
        self.total_cpu_s = 0.0
        """Their CPU time: a driver sleeps until the GPU answers, or polls it (s)."""
        self.unsupported: set[str] = set()
        """Calls and field values that are not available and not asked for again."""
        self.lost: str | None = None
        """Why no more calls are made; ``None``: the GPU answers."""

    def ask(self, name: str, *arguments: Any) -> Any | None:
        """The result of the binding's function ``name``; ``None`` where it fails, for any reason."""
        if self.lost is not None or name in self.unsupported:
            return None
        function = getattr(self._library, name, None)
        if function is None:
            self.unsupported.add(name)
            return None
        began, cpu_began = self._timer(), self._cpu_timer()
        try:
            answer = function(*arguments)
        except self._library.NVMLError as error:
            self.note(name, error.value)
            return None
        finally:
            took_s = self._timer() - began
            count, sum_s = self._cost_s.get(name, (0, 0.0))
            self._cost_s[name] = (count + 1, sum_s + took_s)
            self.total_s += took_s
            self.total_cpu_s += self._cpu_timer() - cpu_began
        self._worked.add(name)
        return answer

    def note(self, name: str, code: int) -> bool:
        """Act on the return code of a call or of one field value.

        Returns:
            Whether the code means success.
        """
        if code == 0:
            self._worked.add(name)
            return True
        fate = self._sorted.get(code, "lost" if name in self._worked else "never")
        if fate == "never":
            self.unsupported.add(name)
        elif fate == "lost":
            self.lost = f"{name}: {self._library.NVMLError(code)}"
        return False

    def cost_s(self) -> dict[str, tuple[int, float]]:
        """Per function: number of calls, and their wall time together (s)."""
        return dict(self._cost_s)
