"""A binding in plain Python whose calls take a scripted time on a clock of its own: what depends on time is exact."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

from pipetune.machine.nvml.gpu import Gpu

#: When the clocks begin: of the monotonic one, and by how much the one since 1970 is ahead (ns).
BEGAN_NS, AHEAD_NS = 10**12, 500 * 10**9


class SlowLibrary:
    """Knows the utilisation alone; every other call is not supported, and as slow.

    Args:
        busy_pct: monotonic time (ns) -> utilisation at that time.
        call_s: what each call takes (s).
        computes: it takes it on the processor.
        period_s: between two updates of the figure, each about the time since the one before.
        samples: it keeps samples, one per update.
        clock_error_s: by how much the driver's clock is behind.
    """

    NVMLError = pynvml.NVMLError
    NVML_GPU_UTILIZATION_SAMPLES = pynvml.NVML_GPU_UTILIZATION_SAMPLES

    def __init__(
        self,
        busy_pct: Callable[[float], float],
        *,
        call_s: float = 0.0,
        computes: bool = False,
        period_s: float = 0.25,
        samples: bool = False,
        clock_error_s: float = 0.0,
    ) -> None:
        self.now_ns = BEGAN_NS
        self.cpu_s = 0.0
        self.calls: list[str] = []
        self.samples = samples
        self._busy_pct, self._call_s, self._period_ns = busy_pct, call_s, round(1e9 * period_s)
        self._computes = computes
        self._error_us = round(1e6 * clock_error_s)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return getattr(pynvml, name)

        def refuse(*_: Any) -> None:
            self._note(name)
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        return refuse

    def nvmlDeviceGetUtilizationRates(self, _handle: Any) -> Any:
        self._note("nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=self._figure(self.now_ns // self._period_ns), memory=0)

    def nvmlDeviceGetSamples(self, _handle: Any, _kind: int, seen_us: int) -> Any:
        self._note("nvmlDeviceGetSamples")
        newest = self.now_ns // self._period_ns if self.samples else 0
        updates = range(max(0, newest - 50), newest + 1) if self.samples else range(0)
        found = [
            SimpleNamespace(timeStamp=stamp_us, sampleValue=SimpleNamespace(uiVal=self._figure(number)))
            for number in updates
            if (stamp_us := (number * self._period_ns + AHEAD_NS) // 1000 - self._error_us) > seen_us
        ]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 1, found

    def nvmlShutdown(self) -> None:
        """Nothing was started."""

    def _note(self, name: str) -> None:
        self.calls.append(name)
        self.now_ns += round(1e9 * self._call_s)
        self.cpu_s += self._call_s if self._computes else 0.0

    def _figure(self, number: int) -> int:
        """Mean over the period that ended with this update, at 20 moments."""
        end_ns = number * self._period_ns
        moments = [(end_ns - self._period_ns * (n + 0.5) / 20 - BEGAN_NS) / 1e9 for n in range(20)]
        return round(sum(map(self._busy_pct, moments)) / 20)


def make_gpu(library: SlowLibrary) -> Gpu:
    """A GPU of the library on the library's clocks."""
    return Gpu(
        library,
        "handle",
        uuid="GPU-slow",
        clock=lambda: library.now_ns,
        unix=lambda: library.now_ns + AHEAD_NS,
        timer=lambda: library.now_ns / 1e9,
        cpu_timer=lambda: library.cpu_s,
    )


def read_for(library: SlowLibrary, seconds: float, *, every_s: float = 0.1) -> Gpu:
    """A GPU that was read at every tick, as the sampler does; the ticks that a slow reading missed are skipped."""
    gpu = make_gpu(library)
    tick = 0
    while tick * every_s < seconds:
        library.now_ns = max(library.now_ns, BEGAN_NS + round(1e9 * every_s * tick))
        gpu.read()
        tick = max(tick + 1, -(-(library.now_ns - BEGAN_NS) // round(1e9 * every_s)))
    return gpu
