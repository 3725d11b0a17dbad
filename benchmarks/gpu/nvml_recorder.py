"""Records what NVML answers, raw and at full rate, beside a load: see :mod:`benchmarks.gpu.nvml_recording`.

The recorder makes every call that pipetune makes, far more often than pipetune does, so that a recording shows when the
driver updates a value, how late, and what a call costs. It runs in three ways:

- ``record(path, seconds)`` in a thread or process of the caller's;
- ``with record_beside(path):`` in a process of its own, which the interpreter's lock of a busy caller does not delay;
- ``with open_recorded_gpu(path) as gpu:`` records nothing but the calls that pipetune's own reader makes.

    python -m benchmarks.gpu.nvml_recorder FILE --seconds 60 [--uuid GPU-…] [--pack]
    python -m benchmarks.gpu.nvml_recorder FILE --describe [--wave WAVE.json]

tests/fake_nvml replays such a file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.nvml_analysis import describe_recording
from benchmarks.gpu.nvml_recording import RecordedBinding, RecordingWriter, pack_recording
from pipetune.machine.nvml.gpu import Gpu, NvmlUnavailable, text_of
from pipetune.machine.nvml.start import start_nvml
from pipetune.processes.parent_death import die_with_parent

__all__ = ["describe_recording", "open_recorded_gpu", "pack_recording", "record", "record_beside"]

#: Time between two calls of a kind (s). The shortest is far below the 20 ms in which the fastest value is updated.
FAST_S, COUNTER_S, GPM_S, LIST_S = 0.005, 0.02, 0.12, 0.5
#: A call that this GPU refuses is tried again this rarely (s): that it is refused is worth some rows.
_REFUSED_S = 5.0
_READY = "recording"
_START_S, _END_S = 15.0, 10.0
_ROOT = Path(__file__).resolve().parents[2]
_FIELDS = (
    "NVML_FI_DEV_PCIE_COUNT_RX_BYTES",
    "NVML_FI_DEV_PCIE_COUNT_TX_BYTES",
    "NVML_FI_DEV_PERF_POLICY_POWER",
    "NVML_FI_DEV_PERF_POLICY_THERMAL",
)


def record(
    path: Path | str,
    seconds: float,
    *,
    uuid: str | None = None,
    stop: threading.Event | None = None,
    ready: Callable[[], None] = lambda: None,
    pace: float = 1.0,
    gpm: bool = True,
) -> dict[str, Any]:
    """Record until ``seconds`` have passed or ``stop`` is set.

    Args:
        path: the file to write, without ``.xz``.
        seconds: longest time.
        uuid: of the GPU as NVML spells it; ``None``: the first one.
        stop: ends it early.
        ready: called once, when the first answers are there.
        pace: factor on the times between calls; 2: half as often.
        gpm: ask for SM activity and engines; ``False`` where pipetune reads them at the same time, because the driver
            may serve one reader only.

    Returns:
        ``answers`` (rows) and ``seconds``.

    Raises:
        NvmlUnavailable: no binding, library, driver, permission.
        pynvml.NVMLError: no such GPU.
    """
    library = start_nvml()
    try:
        handle = library.nvmlDeviceGetHandleByUUID(uuid) if uuid else library.nvmlDeviceGetHandleByIndex(0)
        writer = RecordingWriter(Path(path), describe_gpu(library, handle))
        try:
            calls = Schedule(RecordedBinding(library, writer), handle, pace, gpm=gpm)
            stop, began = stop or threading.Event(), time.monotonic()
            calls.make_due(began)
            ready()
            while (now := time.monotonic()) - began < seconds and not stop.is_set():
                stop.wait(max(0.0, min(calls.next_due_s - now, began + seconds - now)))
                calls.make_due(time.monotonic())
            calls.close()
        finally:
            writer.close()
    finally:
        library.nvmlShutdown()
    return {"answers": calls.made, "seconds": time.monotonic() - began}


class Schedule:
    """The calls, each with its pace.

    Args:
        binding: makes and records them.
        handle: of the GPU.
        pace: factor on the times between calls.
        gpm: whether GPM is asked.
    """

    def __init__(self, binding: Any, handle: Any, pace: float, *, gpm: bool = True) -> None:
        self._binding, self._handle = binding, handle
        self._seen_us = self._seen_process_us = 0
        self._gpm: list[Any] = []
        self.made = 0
        clock = binding.NVML_CLOCK_SM
        fields = [getattr(binding, name) for name in _FIELDS if hasattr(binding, name)]
        simple: tuple[tuple[float, str, tuple[Any, ...]], ...] = (
            (FAST_S, "nvmlDeviceGetUtilizationRates", ()),
            (FAST_S, "nvmlDeviceGetTotalEnergyConsumption", ()),
            (FAST_S, "nvmlDeviceGetPowerUsage", ()),
            (FAST_S, "nvmlDeviceGetClockInfo", (clock,)),
            (FAST_S, "nvmlDeviceGetJpgUtilization", ()),
            (FAST_S, "nvmlDeviceGetCurrentClocksEventReasons", ()),
            (COUNTER_S, "nvmlDeviceGetMemoryInfo", ()),
            (COUNTER_S, "nvmlDeviceGetFieldValues", (fields,)),
            (COUNTER_S, "nvmlDeviceGetDecoderUtilization", ()),
            (_REFUSED_S, "nvmlDeviceGetCurrentClocksThrottleReasons", ()),
            (LIST_S, "nvmlDeviceGetComputeRunningProcesses_v3", ()),
            (_REFUSED_S, "nvmlDeviceGetComputeRunningProcesses_v2", ()),
            (_REFUSED_S, "nvmlDeviceGetMaxClockInfo", (clock,)),
            (_REFUSED_S, "nvmlDeviceGetEnforcedPowerLimit", ()),
            (_REFUSED_S, "nvmlDeviceGetMinorNumber", ()),
            (_REFUSED_S, "nvmlDeviceGetMaxMigDeviceCount", ()),
            (_REFUSED_S, "nvmlGpmQueryDeviceSupport", ()),
        )
        self._calls: list[tuple[float, Callable[[], object]]] = [
            (pace * period_s, self._bind(name, arguments))
            for period_s, name, arguments in simple
            if hasattr(binding, name)
        ]
        self._calls += [
            (pace * FAST_S, self._samples),
            (pace * LIST_S, self._process_samples),
        ]
        if gpm:
            self._calls.append((max(GPM_S, pace * GPM_S), self._gpm_metrics))
        self._due_s = [0.0] * len(self._calls)

    @property
    def next_due_s(self) -> float:
        return min(self._due_s)

    def make_due(self, now_s: float) -> None:
        """Make the calls whose time has come."""
        for number, (period_s, call) in enumerate(self._calls):
            if now_s < self._due_s[number]:
                continue
            try:
                call()
                refused = False
            except self._binding.NVMLError as error:
                # "Not found" is how a driver says that there is nothing new.
                refused = error.value != self._binding.NVML_ERROR_NOT_FOUND
            self.made += 1
            next_s = self._due_s[number] + period_s
            self._due_s[number] = now_s + _REFUSED_S if refused else next_s if next_s > now_s else now_s + period_s

    def close(self) -> None:
        for sample in self._gpm:
            with contextlib.suppress(self._binding.NVMLError):
                self._binding.nvmlGpmSampleFree(sample)

    def _bind(self, name: str, arguments: tuple[Any, ...]) -> Callable[[], object]:
        function = getattr(self._binding, name)
        return lambda: function(self._handle, *arguments)

    def _samples(self) -> None:
        kind = self._binding.NVML_GPU_UTILIZATION_SAMPLES
        _, samples = self._binding.nvmlDeviceGetSamples(self._handle, kind, self._seen_us)
        self._seen_us = max([self._seen_us, *(sample.timeStamp for sample in samples)])

    def _process_samples(self) -> None:
        uses = self._binding.nvmlDeviceGetProcessUtilization(self._handle, self._seen_process_us)
        self._seen_process_us = max([self._seen_process_us, *(use.timeStamp for use in uses)])

    def _gpm_metrics(self) -> None:
        """SM activity and each JPEG and video engine, since the call before."""
        binding = self._binding
        newer = binding.nvmlGpmSampleGet(self._handle, self._gpm.pop(0) if len(self._gpm) > 1 else _alloc(binding))
        self._gpm.append(newer)
        if len(self._gpm) < 2:
            return
        engines = [f"NVML_GPM_METRIC_{kind}_{n}_UTIL" for kind in ("NVJPG", "NVDEC") for n in range(8)]
        names = [name for name in ("NVML_GPM_METRIC_SM_UTIL", *engines) if hasattr(binding, name)]
        question = binding.c_nvmlGpmMetricsGet_t()
        question.version, question.numMetrics = binding.NVML_GPM_METRICS_GET_VERSION, len(names)
        question.sample1, question.sample2 = self._gpm
        for metric, name in zip(question.metrics, names, strict=False):
            metric.metricId = getattr(binding, name)
        binding.nvmlGpmMetricsGet(question)


def _alloc(binding: Any) -> Any:
    return binding.nvmlGpmSampleAlloc()


def describe_gpu(library: Any, handle: Any) -> dict[str, Any]:
    """What a recording says of its GPU; a name that the driver refuses is ``None``."""

    def ask(name: str, *arguments: Any) -> Any:
        with contextlib.suppress(library.NVMLError):
            answer = getattr(library, name)(*arguments)
            return text_of(answer) if isinstance(answer, bytes) else answer

    return {
        "name": ask("nvmlDeviceGetName", handle),
        "uuid": ask("nvmlDeviceGetUUID", handle),
        "driver": ask("nvmlSystemGetDriverVersion"),
        "cuda": ask("nvmlSystemGetCudaDriverVersion_v2"),
        "binding": getattr(library, "__version__", None),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


@contextlib.contextmanager
def record_beside(
    path: Path | str, *, uuid: str | None = None, seconds: float = 3600.0, gpm: bool = True
) -> Iterator[None]:
    """Record in a process of its own while the block runs. It ends with this process, too.

    Raises:
        RuntimeError: it did not begin; the message has what it said.
    """
    command = [sys.executable, "-m", "benchmarks.gpu.nvml_recorder", str(path), "--seconds", str(seconds)]
    command += ["--parent", str(os.getpid()), *(["--uuid", uuid] if uuid else []), *([] if gpm else ["--no-gpm"])]
    path_variable = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path_variable},
    ) as process:
        timer = threading.Timer(_START_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            began = process.stdout.readline().strip() == _READY
        finally:
            timer.cancel()
        if not began:
            process.kill()
            _, complaint = process.communicate()
            raise RuntimeError(
                f"the NVML recorder did not begin: {(complaint.strip().splitlines() or ['no words'])[-1]}"
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def open_recorded_gpu(path: Path | str, *, uuid: str | None = None) -> Iterator[Gpu]:
    """Pipetune's own reader, whose calls alone are recorded. To be read by one thread, as any :class:`Gpu`."""
    library = start_nvml()
    handle = library.nvmlDeviceGetHandleByUUID(uuid) if uuid else library.nvmlDeviceGetHandleByIndex(0)
    about = describe_gpu(library, handle)
    writer = RecordingWriter(Path(path), about)
    gpu = Gpu(RecordedBinding(library, writer), handle, uuid=about["uuid"] or "")
    try:
        yield gpu
    finally:
        gpu.close()
        writer.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Record what NVML answers, or describe a recording.")
    parser.add_argument("file", type=Path, help="the recording")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to record (default: 60)")
    parser.add_argument("--uuid", help="of the GPU (default: the first one)")
    parser.add_argument("--no-gpm", action="store_true", help="leave SM activity and engines to another reader")
    parser.add_argument("--pack", action="store_true", help="compress it to FILE.xz at the end")
    parser.add_argument(
        "--describe", action="store_true", help="record nothing: print what the recording shows, as JSON"
    )
    parser.add_argument("--wave", type=Path, help="JSON list of [monotonic ns, load is on] for --describe")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.describe:
        wave = None if options.wave is None else json.loads(options.wave.read_text())
        print(json.dumps(describe_recording(options.file, wave), indent=1))
        return 0
    if options.parent:
        die_with_parent(options.parent)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        done = record(
            options.file,
            options.seconds,
            uuid=options.uuid,
            stop=stop,
            ready=lambda: print(_READY, flush=True),
            gpm=not options.no_gpm,
        )
    except NvmlUnavailable as error:
        print(f"{error}; {error.hint}", file=sys.stderr)
        return 1
    if options.pack:
        pack_recording(options.file)
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
