"""NVML's cumulative counters of one GPU: bytes over PCIe, and time in which power or heat limited the clocks.

Why not the counters named ``CLOCKS_EVENT_REASON_{SW_THERM,HW_THERM,HW_POWER_BRAKE}_SLOWDOWN``: their numbers moved
between releases of nvml.h (251 to 253, later 269 to 271, where driver 580 has power smoothing), so the number that the
binding knows can mean something else to the driver. ``PERF_POLICY_POWER`` and ``PERF_POLICY_THERMAL`` (74 and 75, ns)
have been stable since 2018. Throttling by the hardware itself is not in those two, but in a flag at each reading.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pipetune.machine.nvml.calls import Calls
from pipetune.machine.nvml.signals import VALUE_FIELDS, share

_RX, _TX = "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES"
_THROTTLED_NS = ("NVML_FI_DEV_PERF_POLICY_POWER", "NVML_FI_DEV_PERF_POLICY_THERMAL")
_BY_HARDWARE = ("HwSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
_BY_SOFTWARE = ("SwPowerCap", "SwThermalSlowdown")
#: More than any link carries: PCIe 6.0 with 16 lanes moves 121 GB/s in each direction.
_MAX_BYTES_PER_S = 128e9


class Amounts(NamedTuple):
    """Bytes and throttling since the last reading; ``None``: not measured."""

    pcie_rx_bytes: int | None = None
    pcie_tx_bytes: int | None = None
    throttled_pct: float | None = None


class Counters:
    """Reads all four counters in one call, and the flags in a second one."""

    def __init__(self, calls: Calls, library: Any, handle: Any) -> None:
        self._calls, self._library, self._handle = calls, library, handle
        self._before: tuple[int, dict[str, int]] | None = None

    def read(self, now_ns: int) -> Amounts:
        """Amounts since the last reading; the first one has nothing to compare with."""
        values = self._values()
        before_ns, before = self._before or (now_ns, {})
        if values:
            self._before = (now_ns, values)
        span_ns = now_ns - before_ns
        pairs = {name: (before[name], value) for name, value in values.items() if name in before and span_ns > 0}
        return Amounts(
            pcie_rx_bytes=bytes_passed(*pairs[_RX], span_ns) if _RX in pairs else None,
            pcie_tx_bytes=bytes_passed(*pairs[_TX], span_ns) if _TX in pairs else None,
            throttled_pct=self._throttled(values, pairs, span_ns),
        )

    def _values(self) -> dict[str, int]:
        library, unsupported = self._library, self._calls.unsupported
        names = [n for n in (_RX, _TX, *_THROTTLED_NS) if n not in unsupported and hasattr(library, n)]
        if not names:
            return {}
        fields = self._calls.ask("nvmlDeviceGetFieldValues", self._handle, [getattr(library, n) for n in names])
        found = zip(names, () if fields is None else fields, strict=False)
        return {
            name: int(getattr(field.value, VALUE_FIELDS[field.valueType]))
            for name, field in found
            if self._calls.note(name, field.nvmlReturn)
        }

    def _throttled(self, values: dict[str, int], pairs: dict[str, tuple[int, int]], span_ns: int) -> float | None:
        counted = any(name in values for name in _THROTTLED_NS)
        shares = [100 * (pairs[n][1] - pairs[n][0]) / span_ns for n in _THROTTLED_NS if n in pairs]
        if counted and not shares:
            return None
        flags = self._calls.ask("nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        if flags is None:  # the name before driver 535
            flags = self._calls.ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle)
        if flags is None:
            return share(max(shares)) if shares else None
        reasons = _BY_HARDWARE if counted else _BY_HARDWARE + _BY_SOFTWARE
        flagged = any(flags & getattr(self._library, f"nvmlClocksEventReason{reason}") for reason in reasons)
        # Two reasons can hold at once, so the largest share counts and not the sum: too low at times, never too high.
        return 100.0 if flagged else share(max(shares, default=0.0))


def bytes_passed(before: int, after: int, span_ns: int) -> int | None:
    """Difference of a byte counter that "can be wrapped" (nvml.h, which does not say where): at 32 or at 64 bits.

    ``None`` when the difference is more than a link can carry in that time, as after a reset of the counter.
    """
    passed = after - before
    if passed < 0:
        passed += 2**32 if before < 2**32 else 2**64
    return passed if passed <= _MAX_BYTES_PER_S * span_ns / 1e9 else None
