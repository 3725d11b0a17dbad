"""NVML's cumulative counters of one GPU: bytes over PCIe, and time in which power or heat limited the clocks.

A GPU at its power limit works as it should: many boost until they reach it. One that heat or a power brake slows down
does not. So the two are kept apart.

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
_POWER_NS, _HEAT_NS = "NVML_FI_DEV_PERF_POLICY_POWER", "NVML_FI_DEV_PERF_POLICY_THERMAL"
_POWER_FLAG, _HEAT_FLAG = "SwPowerCap", "SwThermalSlowdown"
_BY_HARDWARE = ("HwThermalSlowdown", "HwPowerBrakeSlowdown")
#: Alone, without one of those two, it "may be also reported during PState or clock change" (nvml.h): it has to last.
_HARDWARE = "HwSlowdown"
#: More than any link carries: PCIe 6.0 with 16 lanes moves 121 GB/s in each direction.
_MAX_BYTES_PER_S = 128e9


class Amounts(NamedTuple):
    """Bytes and held clocks since the last reading; ``None``: not measured."""

    pcie_rx_bytes: int | None = None
    pcie_tx_bytes: int | None = None
    slowed_pct: float | None = None
    """By heat, or by the hardware itself."""
    power_capped_pct: float | None = None
    """At the power limit that the driver keeps."""


class Counters:
    """Reads all four counters in one call, and the flags in a second one."""

    def __init__(self, calls: Calls, library: Any, handle: Any) -> None:
        self._calls, self._library, self._handle = calls, library, handle
        self._before: tuple[int, dict[str, int]] | None = None
        self._hardware = False

    def read(self, now_ns: int) -> Amounts:
        """Amounts since the last reading; the first one has nothing to compare with."""
        values = self._values()
        before_ns, before = self._before or (now_ns, {})
        if values:
            self._before = (now_ns, values)
        span_ns = now_ns - before_ns
        pairs = {name: (before[name], value) for name, value in values.items() if name in before and span_ns > 0}
        flags = self._flags()

        def held(counter: str, reason: str) -> float | None:
            if counter in pairs:
                return share(100 * (pairs[counter][1] - pairs[counter][0]) / span_ns)
            if counter in values or flags is None:  # the first reading of the counter, or nothing at all
                return None
            return 100.0 if self._is_set(flags, reason) else 0.0

        slowed, by_hardware = held(_HEAT_NS, _HEAT_FLAG), flags is not None and self._slowed_by_hardware(flags)
        return Amounts(
            pcie_rx_bytes=bytes_passed(*pairs[_RX], span_ns) if _RX in pairs else None,
            pcie_tx_bytes=bytes_passed(*pairs[_TX], span_ns) if _TX in pairs else None,
            slowed_pct=100.0 if by_hardware and slowed is not None else slowed,
            power_capped_pct=held(_POWER_NS, _POWER_FLAG),
        )

    def _values(self) -> dict[str, int]:
        library, unsupported = self._library, self._calls.unsupported
        names = [n for n in (_RX, _TX, _POWER_NS, _HEAT_NS) if n not in unsupported and hasattr(library, n)]
        if not names:
            return {}
        fields = self._calls.ask("nvmlDeviceGetFieldValues", self._handle, [getattr(library, n) for n in names])
        found = zip(names, () if fields is None else fields, strict=False)
        return {
            name: int(getattr(field.value, VALUE_FIELDS[field.valueType]))
            for name, field in found
            if self._calls.note(name, field.nvmlReturn)
        }

    def _flags(self) -> int | None:
        flags = self._calls.ask("nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        if flags is None:  # the name before driver 535
            flags = self._calls.ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle)
        return None if flags is None else int(flags)

    def _slowed_by_hardware(self, flags: int) -> bool:
        lasted, self._hardware = self._hardware, self._is_set(flags, _HARDWARE)
        return any(self._is_set(flags, reason) for reason in _BY_HARDWARE) or (lasted and self._hardware)

    def _is_set(self, flags: int, reason: str) -> bool:
        return bool(flags & getattr(self._library, f"nvmlClocksEventReason{reason}"))


def bytes_passed(before: int, after: int, span_ns: int) -> int | None:
    """Difference of a byte counter that "can be wrapped" (nvml.h, which does not say where): at 32 or at 64 bits.

    ``None`` when the difference is more than a link can carry in that time, as after a reset of the counter.
    """
    passed = after - before
    if passed < 0:
        passed += 2**32 if before < 2**32 else 2**64
    return passed if passed <= _MAX_BYTES_PER_S * span_ns / 1e9 else None
