"""Signals of one GPU through NVML: SM activity, power and clocks; how often each is read. ``None``: there is none.

Semantics are those of nvml.h. The calls were chosen not to disturb the running job: none blocks by design, as
``nvmlDeviceGetPcieThroughput`` does for 20 ms, and none lists processes, which takes milliseconds under locks of the
driver. :class:`Paced` makes a call less often where it proves slow on this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from pipetune.machine.nvml.calls import Calls

T = TypeVar("T")


class Pace(NamedTuple):
    """Largest shares of the time for the calls of one signal."""

    wall_share: float
    """While a driver sleeps in a call, it may hold locks that the job waits for when it allocates memory."""
    cpu_share: float
    """While it polls the GPU, a core works for the sampler, which has 1 % of one for everything."""


#: A call of 1 ms is made twice a second, one of 1 ms CPU time every three seconds.
USUAL_PACE = Pace(0.002, 0.0003)
#: The utilisation decides verdicts and ``--target-metric nvml``: a call of 1 ms is made ten times a second, one of 1 ms
#: CPU time about three times.
UTILISATION_PACE = Pace(0.015, 0.003)
_LONGEST_PERIOD_S = 5.0
#: A mean over the time since the last reading says little about what comes a second later.
MAX_CARRY_S = 1.0
_SM_UTIL = "NVML_GPM_METRIC_SM_UTIL"
#: The driver's figure of its JPEG engines, which a MIG slice lacks; and those of GPM, one for each engine.
JPEG_CALL = "nvmlDeviceGetJpgUtilization"
JPEG_ENGINES = tuple(f"NVML_GPM_METRIC_NVJPG_{engine}_UTIL" for engine in range(8))
#: The driver averages utilisation over at most 1 s (nvml.h): nothing new for twice as long means that it stopped.
STALE_NS = 2_000_000_000
_LIMITS_S = 60.0
#: ``nvmlValueType_t`` -> the field of the union ``nvmlValue_t`` that holds the number.
VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Paced(Generic[T]):
    """Reads a signal as often as its cost allows, and repeats the last value in between.

    One slow answer (another process held the driver's lock) changes nothing: the cheaper of the last two counts.

    Args:
        calls: measures the signal's cost.
        read: time (ns) -> value.
        period_s: shortest time between two readings.
        pace: what its calls may take.
        between: last value, and its age (s) -> value in between; default: the same.
    """

    def __init__(
        self,
        calls: Calls,
        read: Callable[[int], T],
        *,
        period_s: float = 0.0,
        pace: Pace = USUAL_PACE,
        between: Callable[[T, float], T] = lambda value, age_s: value,
    ) -> None:
        self._calls, self._read, self._period_s, self._between = calls, read, period_s, between
        self._pace = pace
        self._last: tuple[int, T] | None = None
        self._due_ns = 0
        self._needed_s = 0.0
        self.cost_s = 0.0
        """Wall time of the calls of the last reading (s)."""
        self.affordable_s = 0.0
        """Time between two readings that their cost allows (s)."""

    def read(self, now_ns: int) -> T:
        """The value at ``now_ns``."""
        if self._last is not None and now_ns < self._due_ns:
            return self._between(self._last[1], (now_ns - self._last[0]) / 1e9)
        before_s, before_cpu_s = self._calls.total_s, self._calls.total_cpu_s
        value = self._read(now_ns)
        self.cost_s, cpu_s = self._calls.total_s - before_s, self._calls.total_cpu_s - before_cpu_s
        needed_s = max(self.cost_s / self._pace.wall_share, cpu_s / self._pace.cpu_share)
        self.affordable_s = min(_LONGEST_PERIOD_S, needed_s, self._needed_s)
        self._needed_s = needed_s
        affordable_ns = round(1e9 * self.affordable_s)
        # Counted from when this reading was due: readings come at ticks, and one that came a little too early for its
        # tick would otherwise be made at every other tick only.
        due_ns = self._due_ns if now_ns - self._due_ns < affordable_ns else now_ns
        self._due_ns = max(now_ns + round(1e9 * self._period_s), due_ns + affordable_ns)
        self._last = (now_ns, value)
        return value


def carry_mean(percent: float | None, age_s: float) -> float | None:
    """A mean since the last reading, repeated for a second at most, so that it does not stand for another time."""
    return percent if age_s <= MAX_CARRY_S else None


class GpmShares(NamedTuple):
    """Shares of the time since the last reading (%); ``None``: not told."""

    sm_pct: float | None = None
    """Share of the multiprocessors that were busy (%)."""
    jpeg_pct: float | None = None
    """Mean share of the JPEG engines that were busy (%); only where the driver has no figure of its own for them."""


class GpmActivity:
    """Busy shares of a GPU's units, averaged since the last reading, by GPM: Hopper and later.

    Readings must be more than 100 ms apart, or the answer is invalid (NVIDIA/DCGM issue 310).
    """

    def __init__(self, calls: Calls, library: Any, handle: Any, *, mig: bool) -> None:
        self._calls, self._library, self._handle, self._mig = calls, library, handle, mig
        self._slice: Any = None
        self._older: Any = None
        self._spare: Any = None
        self._ready = False

    def read(self, _now_ns: int) -> GpmShares:
        """Nothing at the first reading, which has nothing to compare with, and where there is no GPM."""
        if not self._ready:
            self._ready = True
            self._spare = self._prepare()
        if self._spare is None or not (names := self._wanted()):
            return GpmShares()
        newer = (
            self._calls.ask("nvmlGpmMigSampleGet", self._handle, self._slice, self._spare)
            if self._mig
            else self._calls.ask("nvmlGpmSampleGet", self._handle, self._spare)
        )
        if newer is None:
            return GpmShares()
        older, self._older = self._older, newer
        self._spare = self._calls.ask("nvmlGpmSampleAlloc") if older is None else older
        if older is None:
            return GpmShares()
        shares = self._compare(older, newer, names)
        engines = [value for name, value in shares.items() if name != _SM_UTIL]
        return GpmShares(shares.get(_SM_UTIL), sum(engines) / len(engines) if engines else None)

    def close(self) -> None:
        """Free both samples."""
        for sample in (self._older, self._spare):
            if sample is not None:
                self._calls.ask("nvmlGpmSampleFree", sample)
        self._older = self._spare = None

    def _prepare(self) -> Any | None:
        if self._mig:
            # A slice is sampled through the GPU that it is cut from, by the number of its GPU instance.
            self._slice = self._calls.ask("nvmlDeviceGetGpuInstanceId", self._handle)
            self._handle = self._calls.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", self._handle)
            if self._slice is None or self._handle is None:
                return None
        support = self._calls.ask("nvmlGpmQueryDeviceSupport", self._handle)
        if support is None or not support.isSupportedDevice:
            self._calls.unsupported.add("nvmlGpmSampleGet")
            return None
        return self._calls.ask("nvmlGpmSampleAlloc")

    def _wanted(self) -> list[str]:
        """Metrics that this GPU may have."""
        unsupported = self._calls.unsupported
        engines = JPEG_ENGINES if JPEG_CALL in unsupported else ()
        return [name for name in (_SM_UTIL, *engines) if name not in unsupported and hasattr(self._library, name)]

    def _compare(self, older: Any, newer: Any, names: list[str]) -> dict[str, float]:
        """Metric -> its share of the time between two samples (%), of those that have one."""
        question = self._library.c_nvmlGpmMetricsGet_t()
        question.version = self._library.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(names)
        question.sample1, question.sample2 = older, newer
        for metric, name in zip(question.metrics, names, strict=False):
            metric.metricId = getattr(self._library, name)
        if self._calls.ask("nvmlGpmMetricsGet", question) is None:
            return {}
        return {
            name: share(metric.value)
            for metric, name in zip(question.metrics, names, strict=False)
            if self._calls.note(name, metric.nvmlReturn) and math.isfinite(metric.value)
        }


class Power:
    """Mean power (W) since the last reading, from the energy counter (Volta and later), else the driver's own figure.

    The counter is constant between its updates, so the time counts from its last change.

    A MIG slice has none: both figures are the whole GPU's, which other slices use as well.
    """

    def __init__(self, calls: Calls, handle: Any, *, mig: bool = False) -> None:
        self._calls, self._handle, self._mig = calls, handle, mig
        self._moved: tuple[int, int] | None = None
        self._watts: float | None = None
        self._told: tuple[int, float] | None = None

    def read(self, now_ns: int) -> float | None:
        """Watts; ``None`` at the first reading and where neither figure is available."""
        if self._mig:
            return None
        energy_mj = self._calls.ask("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        if energy_mj is None:
            milliwatts = self._calls.ask("nvmlDeviceGetPowerUsage", self._handle)
            return None if milliwatts is None else milliwatts / 1e3
        self._told = (now_ns, energy_mj / 1e3)
        if self._moved is None or energy_mj < self._moved[1]:
            self._moved, self._watts = (now_ns, energy_mj), None
        elif energy_mj > self._moved[1] and now_ns > self._moved[0]:
            # 1 mJ/ns = 1e6 W
            self._watts = (energy_mj - self._moved[1]) / (now_ns - self._moved[0]) * 1e6
            self._moved = (now_ns, energy_mj)
        elif now_ns - self._moved[0] > STALE_NS:
            # No GPU uses no energy for so long: the counter exists, but does not count.
            self._calls.unsupported.add("nvmlDeviceGetTotalEnergyConsumption")
        return self._watts

    def find_energy_j(self, now_ns: int) -> float | None:
        """The energy counter (J), where it was read at ``now_ns``; ``None``: it was not, or this GPU has none."""
        return None if self._told is None or self._told[0] != now_ns else self._told[1]


class Clocks(NamedTuple):
    """The multiprocessors' clock, the highest one of this GPU, and the power limit; ``None``: not available."""

    sm_mhz: int | None = None
    max_sm_mhz: int | None = None
    power_limit_w: float | None = None


class ClockReader:
    """Reads the clock at this instant, and once a minute what limits it: both limits can be set while a job runs."""

    def __init__(self, calls: Calls, library: Any, handle: Any) -> None:
        self._calls, self._library, self._handle = calls, library, handle
        self._limits = Paced(calls, self._read_limits, period_s=_LIMITS_S)

    def read(self, now_ns: int) -> Clocks:
        """Clocks (MHz) and power limit (W)."""
        now = self._calls.ask("nvmlDeviceGetClockInfo", self._handle, self._library.NVML_CLOCK_SM)
        return self._limits.read(now_ns)._replace(sm_mhz=now)

    def _read_limits(self, _now_ns: int) -> Clocks:
        highest = self._calls.ask("nvmlDeviceGetMaxClockInfo", self._handle, self._library.NVML_CLOCK_SM)
        milliwatts = self._calls.ask("nvmlDeviceGetEnforcedPowerLimit", self._handle)
        return Clocks(None, highest, None if milliwatts is None else milliwatts / 1e3)


def share(value: float) -> float:
    """A percentage within 0..100: drivers have been seen to report more."""
    return min(100.0, max(0.0, float(value)))
