"""One GPU through NVML by its own binding (``pynvml`` of the distribution nvidia-ml-py): open, read and close it.

NVML is initialised once per open GPU, which takes up to two seconds on a machine with many GPUs, so a GPU is opened
once and read often, also over several measurements (:mod:`pipetune.machine.nvml.held`). Never fork with a GPU open:
start programs instead.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pipetune.machine.nvml.calls import Calls
from pipetune.machine.nvml.counters import Amounts, Counters
from pipetune.machine.nvml.process_use import ProcessUse
from pipetune.machine.nvml.signals import (
    JPEG_CALL,
    UTILISATION_PACE,
    ClockReader,
    GpmActivity,
    GpmShares,
    Paced,
    Power,
    carry_mean,
    share,
)
from pipetune.machine.nvml.start import NvmlUnavailable as NvmlUnavailable  # noqa: PLC0414 - what opening a GPU raises
from pipetune.machine.nvml.start import start_nvml, unavailable
from pipetune.machine.nvml.utilisation import Utilisation
from pipetune.records.observation import BusySpan, GpuReading

#: All signals but the utilisation are read twice a second: enough for a diagnosis, and few calls under the driver's
#: locks. A little less than half a second, so that every fifth tick of 0.1 s is late enough in spite of jitter.
_SLOW_S = 0.45

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """One GPU as NVML lists it, in the order of the PCI bus, which can differ from CUDA's."""

    index: int
    uuid: str | None = None
    name: str | None = None
    memory_bytes: int | None = None
    problem: str | None = None
    """Why the values are missing; one GPU of a machine can be lost while another works."""


class Gpu:
    """An open GPU. Made by :func:`open_gpu`; used by one thread at a time.

    Args:
        library: the imported and initialised ``pynvml``.
        handle: NVML's.
        uuid: as NVML spells it; begins with ``MIG-`` for a slice.
        clock: ns; the time base of amounts per reading.
        unix: ns since 1970; the clock that the driver's samples are stamped with.
        timer: s; measures the cost of the calls, which decides how often they are made.
        cpu_timer: s; measures their CPU time, which does so, too.
    """

    def __init__(
        self,
        library: Any,
        handle: Any,
        *,
        uuid: str,
        clock: Callable[[], int] = time.monotonic_ns,
        unix: Callable[[], int] = time.time_ns,
        timer: Callable[[], float] = time.perf_counter,
        cpu_timer: Callable[[], float] = time.thread_time,
    ) -> None:
        self._library, self._handle, self._clock, self._unix = library, handle, clock, unix
        self._calls = Calls(library, timer, cpu_timer)
        self._on_close: Callable[[Gpu], None] = Gpu.shut_down
        self.uuid = uuid
        self.name: str = text_of(self._calls.ask("nvmlDeviceGetName", handle)) or "unknown GPU"
        self.driver_version: str | None = text_of(self._calls.ask("nvmlSystemGetDriverVersion"))
        self.cuda_version: int | None = self._calls.ask("nvmlSystemGetCudaDriverVersion_v2")
        """The newest CUDA that the driver runs: 13000 for 13.0."""
        self._begin(None)

    def _begin(self, before: Utilisation | None) -> None:
        """Signals without a past. Makes no call.

        Args:
            before: read the utilisation in an earlier measurement.
        """
        library, handle = self._library, self._handle
        self._open = True
        self._samples = Utilisation(self._calls, library, handle, clock=self._clock, unix=self._unix, before=before)
        self._utilisation = Paced(self._calls, self._samples.read, pace=UTILISATION_PACE)
        self._memory = Paced(self._calls, self._memory_used, period_s=_SLOW_S)
        is_slice = self.uuid.startswith("MIG-")
        self._gpm = GpmActivity(self._calls, library, handle, mig=is_slice)
        self._gpm_shares = Paced(
            self._calls,
            self._gpm.read,
            period_s=_SLOW_S,
            between=lambda last, age_s: GpmShares(*(carry_mean(percent, age_s) for percent in last)),
        )
        self._jpeg = Paced(self._calls, self._jpeg_used, period_s=_SLOW_S, between=carry_mean)
        self._energy = Power(self._calls, handle, mig=is_slice)
        self._power = Paced(self._calls, self._energy.read, period_s=_SLOW_S, between=carry_mean)
        self._processes = Paced(self._calls, ProcessUse(self._calls, handle).read, period_s=_SLOW_S)
        self._clocks = Paced(self._calls, ClockReader(self._calls, library, handle).read, period_s=_SLOW_S)
        self._counters = Paced(
            self._calls,
            Counters(self._calls, library, handle).read,
            period_s=_SLOW_S,
            # A share may be repeated for a while; bytes may not, since they would count twice.
            between=lambda last, age_s: Amounts(
                slowed_pct=carry_mean(last.slowed_pct, age_s), power_capped_pct=carry_mean(last.power_capped_pct, age_s)
            ),
        )

    def renew(self, on_close: Callable[[Gpu], None]) -> Gpu:
        """This open GPU for another measurement, which nothing that was read before enters. Makes no call.

        What the GPU was found not to support is still known, and so are how often its driver updates the utilisation
        and that it is lost. The GPU itself must not be used
        any more while the renewed one is.

        Args:
            on_close: called by the first :meth:`close` of the renewed GPU, in the thread that calls that, instead of
                shutting NVML down. It is given the renewed GPU, whose :meth:`shut_down` does so.
        """
        renewed = copy.copy(self)
        renewed._on_close = on_close
        renewed._begin(self._samples)
        return renewed

    @property
    def lost(self) -> str | None:
        """Why the GPU cannot be read any more, e.g. ``'nvmlDeviceGetSamples: GPU is lost'``."""
        return self._calls.lost

    @property
    def unsupported(self) -> frozenset[str]:
        """Names of NVML's functions and field values that were asked for and are not available here."""
        return frozenset(self._calls.unsupported)

    def call_cost_s(self) -> dict[str, tuple[int, float]]:
        """Per function of the binding: number of calls, and their wall time together (s)."""
        return self._calls.cost_s()

    def read(self) -> GpuReading:
        """Read all signals. Never raises: what is unavailable is ``None``, and all is once the GPU is lost or closed.

        ``pcie_*`` is set twice a second and ``None`` in between, so that the sum over readings is the total; so is
        ``energy_j``, which is a total itself.
        """
        if not self._open:
            return GpuReading()
        now_ns = self._clock()
        amounts, clocks = self._counters.read(now_ns), self._clocks.read(now_ns)
        gpm, jpeg_pct = self._gpm_shares.read(now_ns), self._jpeg.read(now_ns)
        held = [pct for pct in (amounts.slowed_pct, amounts.power_capped_pct) if pct is not None]
        reading = GpuReading(
            util_pct=self._utilisation.read(now_ns),
            mem_used_bytes=self._memory.read(now_ns),
            sm_active_pct=gpm.sm_pct,
            jpeg_util_pct=gpm.jpeg_pct if jpeg_pct is None else jpeg_pct,
            pcie_rx_bytes=amounts.pcie_rx_bytes,
            pcie_tx_bytes=amounts.pcie_tx_bytes,
            power_w=self._power.read(now_ns),
            energy_j=self._energy.find_energy_j(now_ns),
            # Both can hold at once, so the larger share counts and not the sum: too low at times, never too high.
            throttled_pct=max(held, default=None),
            slowed_pct=amounts.slowed_pct,
            power_capped_pct=amounts.power_capped_pct,
            sm_clock_mhz=clocks.sm_mhz,
            max_sm_clock_mhz=clocks.max_sm_mhz,
            power_limit_w=clocks.power_limit_w,
        )
        return GpuReading() if self.lost else reading

    def busy_spans(self, after_ns: int) -> tuple[BusySpan, ...]:
        """Stretches of time that end after ``after_ns``, with the utilisation that :meth:`read` has brought about them.

        They are the driver's samples; where it keeps none, or stamps them by another clock, they follow from when its
        figure changed. Empty where nothing says which time a figure is about.
        """
        new = itertools.takewhile(lambda span: span.t_end_ns > after_ns, reversed(self._samples.spans))
        return tuple(new)[::-1]

    def describe_slow_utilisation(self, interval_s: float) -> str | None:
        """Why the utilisation is known worse than readings every ``interval_s`` (s) would tell it; ``None``: it is not.

        The driver's samples are all there, however rarely it is asked for them.
        """
        return self._samples.describe_problem(interval_s, self._utilisation)

    def process_fracs(self) -> dict[int, float] | None:
        """PID on the host -> share of the time in which it computed (0..1); ``None``: the driver does not tell.

        To be asked only for a GPU that several processes use: NVML goes through all of them.
        """
        return self._processes.read(self._clock()) if self._open else None

    def close(self) -> None:
        """End reading: shut NVML down, or give the GPU back (:meth:`renew`). May be called again."""
        if self._open:
            self._open = False
            self._gpm.close()
            self._on_close(self)

    def shut_down(self) -> None:
        """Shut NVML down, once for each GPU that was opened; its handle is of no use any more."""
        with contextlib.suppress(self._library.NVMLError):
            self._library.nvmlShutdown()

    def _memory_used(self, _now_ns: int) -> int | None:
        memory = self._calls.ask("nvmlDeviceGetMemoryInfo", self._handle)
        return None if memory is None else int(memory.used)

    def _jpeg_used(self, _now_ns: int) -> float | None:
        answer = self._calls.ask(JPEG_CALL, self._handle)
        return None if answer is None else share(answer[0])


def open_gpu(
    *,
    index: int | None = None,
    uuid: str | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
    unix: Callable[[], int] = time.time_ns,
    timer: Callable[[], float] = time.perf_counter,
    cpu_timer: Callable[[], float] = time.thread_time,
) -> Gpu:
    """Open one GPU.

    Args:
        index: NVML's number, which can differ from CUDA's; 0 when neither is given.
        uuid: ``GPU-…`` or ``MIG-…``; also without that prefix, as CUDA and torch give it. Wins over ``index``.
        clock: ns, like ``time.monotonic_ns``.
        unix: ns, like ``time.time_ns``.
        timer: s, like ``time.perf_counter``; measures the calls.
        cpu_timer: s, like ``time.thread_time``; measures their CPU time.

    Raises:
        NvmlUnavailable: no binding, library, driver, permission or such GPU.
    """
    library = start_nvml()
    try:
        handle = _by_uuid(library, uuid) if uuid else library.nvmlDeviceGetHandleByIndex(index or 0)
        name = text_of(library.nvmlDeviceGetUUID(handle)) or ""
        return Gpu(library, handle, uuid=name, clock=clock, unix=unix, timer=timer, cpu_timer=cpu_timer)
    except library.NVMLError as error:
        problem = _no_such_gpu(library, f"with UUID {uuid}" if uuid else f"number {index or 0}", error)
        library.nvmlShutdown()
        raise problem from error


def list_gpus() -> tuple[GpuInfo, ...]:
    """All GPUs that NVML shows to this process.

    Raises:
        NvmlUnavailable: no binding, library, driver or permission.
    """
    return for_each_gpu(_describe)


def for_each_gpu(read: Callable[[Any, int], T]) -> tuple[T, ...]:
    """The result of ``read`` for each GPU.

    Args:
        read: takes the started binding and NVML's index, and handles that GPU's errors.

    Raises:
        NvmlUnavailable: no binding, library, driver or permission.
    """
    library = start_nvml()
    try:
        return tuple(read(library, index) for index in range(library.nvmlDeviceGetCount()))
    except library.NVMLError as error:
        raise unavailable(library, error) from error
    finally:
        library.nvmlShutdown()


def _no_such_gpu(library: Any, which: str, error: Any) -> NvmlUnavailable:
    if error.value not in (library.NVML_ERROR_NOT_FOUND, library.NVML_ERROR_INVALID_ARGUMENT):
        return unavailable(library, error)
    there = [_describe(library, index) for index in range(library.nvmlDeviceGetCount())]
    listed = ", ".join(f"{gpu.index}: {gpu.name} {gpu.uuid}" for gpu in there) or "none"
    return NvmlUnavailable(f"no GPU {which}", reason="no_such_gpu", hint=f"NVML shows {listed}")


def _by_uuid(library: Any, uuid: str) -> Any:
    spellings = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
    for spelling in spellings[:-1]:
        with contextlib.suppress(library.NVMLError):
            return library.nvmlDeviceGetHandleByUUID(spelling)
    return library.nvmlDeviceGetHandleByUUID(spellings[-1])


def _describe(library: Any, index: int) -> GpuInfo:
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
        uuid, name = text_of(library.nvmlDeviceGetUUID(handle)), text_of(library.nvmlDeviceGetName(handle))
    except library.NVMLError as error:
        return GpuInfo(index=index, problem=str(error))
    memory_bytes = None
    with contextlib.suppress(library.NVMLError):  # not for every user on a GPU that is cut into MIG slices
        memory_bytes = int(library.nvmlDeviceGetMemoryInfo(handle).total)
    return GpuInfo(index=index, uuid=uuid, name=name, memory_bytes=memory_bytes)


def text_of(value: str | bytes | None) -> str | None:
    """A name as text; older releases of the binding return bytes."""
    return value.decode() if isinstance(value, bytes) else value
