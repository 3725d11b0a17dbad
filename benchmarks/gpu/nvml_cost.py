"""Stage ``nvml``: what NVML's calls cost the sampler, and a whole reading.

No call is named here. A real ``Gpu`` reads through a wrapper of the binding that records each call with its arguments;
then each of them is repeated with the same arguments and timed. So the calls that are timed are those of the sampler,
to an idle GPU and to one that multiplies matrices without a pause in another process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from benchmarks import bench
from benchmarks.gpu.leasing.findings import Findings
from pipetune.machine.nvml.gpu import Gpu, NvmlUnavailable, open_gpu
from pipetune.records.observation import GpuReading
from pipetune.sampler.loop import Observer

INTERVAL_S = 0.1
PROMISE_CORE_FRAC = 0.01
#: Readings until every signal was read twice: the slow ones are read twice a second, and one compares two readings.
_READINGS = 14
#: Repeating these would leave memory allocated, or free it twice; the sampler calls them a few times in its life.
_ONCE = ("nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlShutdown")
_BUSY = """
import sys, torch
from pipetune.processes.parent_death import die_with_parent
die_with_parent(int(sys.argv[2]))
cuda = sys.argv[1].startswith("cuda")
torch.set_num_threads(1)
a = torch.randn([4096 if cuda else 256] * 2, device=sys.argv[1] if cuda else "cpu")
print("ready", flush=True)
while True:
    for _ in range(20):
        a @ a
    if cuda:
        torch.cuda.synchronize()
"""


def run_stage(findings: Findings) -> None:
    """Time calls and readings, on an idle and on a busy GPU."""
    repeats, readings = (50, 30)
    try:
        uuid = find_gpu(findings.uuid)
    except NvmlUnavailable as error:
        if findings.is_cuda:
            raise
        raise bench.Skipped(f"NVML: {error}") from None
    states: dict[str, dict[str, Any]] = {}
    for state in ("idle", "busy"):
        with busy(findings.device) if state == "busy" else contextlib.nullcontext():
            states[state] = measure_state(uuid, repeats, readings)
        findings.keep(state, states[state])
        share = states[state]["reading"]["cpu_mean_us"] / (INTERVAL_S * 1e6)
        findings.keep(f"{state}_core_frac", share)
        if share >= PROMISE_CORE_FRAC:
            findings.report_problem(
                f"{state}: the sampler takes {share:.2%} of a core at {1 / INTERVAL_S:.0f} Hz, "
                f"promised is less than {PROMISE_CORE_FRAC:.0%}"
            )
        if states[state]["lost"]:
            findings.report_problem(f"{state}: {states[state]['lost']}")
    without = reading_cost(None, readings)
    findings.keep("reading_without_gpu", without)
    findings.say(*lines_about(states, without))


def find_gpu(uuid: str | None) -> str:
    """UUID of the device as NVML spells it; of the first GPU, where it is not a CUDA device."""
    gpu = open_gpu(uuid=uuid)
    gpu.close()
    return gpu.uuid


class RecordingBinding:
    """The binding, with a record of each call's last arguments and of the calls that were refused."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.calls: dict[str, tuple[Any, ...]] = {}
        self.refused: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if not name.startswith("nvml") or isinstance(found, type) or not callable(found):
            return found

        def ask(*arguments: Any) -> Any:
            self.calls[name] = arguments
            try:
                answer = found(*arguments)
            except self._library.NVMLError as error:
                self.refused[name] = str(error)
                raise
            self.refused.pop(name, None)
            return answer

        return ask


def measure_state(uuid: str, repeats: int, count: int) -> dict[str, Any]:
    import pynvml

    pynvml.nvmlInit()  # taken back when the GPU is closed
    binding = RecordingBinding(pynvml)
    gpu = Gpu(binding, pynvml.nvmlDeviceGetHandleByUUID(uuid), uuid=uuid)
    try:
        readings = []
        for _ in range(_READINGS):
            readings.append(asdict(gpu.read()))
            time.sleep(INTERVAL_S * 1.05)  # a comparison of samples less than 0.1 s apart is invalid
        calls = {
            call: repeat(pynvml, call, arguments, repeats)
            for call, arguments in sorted(binding.calls.items())
            if call not in _ONCE
        }
        refused, unsupported = dict(binding.refused), sorted(gpu.unsupported)
    finally:
        gpu.close()
    with contextlib.closing(open_gpu(uuid=uuid)) as opened:
        reading = reading_cost(opened, count)
        lost = opened.lost
    return {
        "calls": calls,
        "refused": refused,
        "unsupported": unsupported,
        "reading": reading,
        "lost": lost,
        "signals": {field: newest(readings, field) for field in asdict(GpuReading())},
    }


def repeat(library: Any, call: str, arguments: tuple[Any, ...], repeats: int) -> dict[str, float] | None:
    """Wall time per call; ``None`` where this GPU or driver lacks it."""
    function, took_us = getattr(library, call), []
    for _ in range(repeats):
        began = time.perf_counter()
        try:
            function(*arguments)
        except library.NVMLError:
            return None
        took_us.append((time.perf_counter() - began) * 1e6)
    return {"median_us": round(median(took_us), 1), "p95_us": p95(took_us)}


def reading_cost(gpu: Gpu | None, count: int) -> dict[str, float]:
    """Cost of reading machine, process and GPU, at the sampler's pace: most readings ask only for the utilisation."""
    observer, wall_us, cpu_us = Observer(os.getpid(), gpu), [], []
    try:
        for number in range(count + 1):
            began = time.perf_counter()
            reading = observer.read()
            if number:  # the first one opens all files
                wall_us.append((time.perf_counter() - began) * 1e6)
                cpu_us.append(reading.tick_cost_s * 1e6)
            time.sleep(max(0.0, INTERVAL_S - (time.perf_counter() - began)))
    finally:
        observer.close()
    return {
        "readings": count,
        "wall_median_us": round(median(wall_us), 1),
        "wall_p95_us": p95(wall_us),
        "cpu_median_us": round(median(cpu_us), 1),
        "cpu_p95_us": p95(cpu_us),
        "cpu_mean_us": round(fmean(cpu_us), 1),
    }


def newest(readings: Sequence[dict[str, Any]], field: str) -> float | None:
    return next((reading[field] for reading in reversed(readings) if reading[field] is not None), None)


def p95(values: Sequence[float]) -> float:
    return round(sorted(values)[int(0.95 * len(values))], 1)


@contextlib.contextmanager
def busy(name: str) -> Iterator[None]:
    """Keep the device busy with matrix products in another process; a core, where it is not a CUDA device."""
    command = [sys.executable, "-c", _BUSY, name, str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                process.kill()
                raise RuntimeError(f"the process that should keep the device busy ended with {process.wait()}")
            time.sleep(1.0)
            yield
        finally:
            process.kill()


def lines_about(states: dict[str, dict[str, Any]], without: dict[str, float]) -> list[str]:
    names = sorted({call for found in states.values() for call in found["calls"]})
    rows = [[call, *(cells(found["calls"].get(call)) for found in states.values())] for call in names]
    for title, kind in (("a whole reading (wall)", "wall"), ("a whole reading (CPU)", "cpu")):
        rows.append(
            [
                title,
                *(f"{f['reading'][f'{kind}_median_us']} / {f['reading'][f'{kind}_p95_us']}" for f in states.values()),
            ]
        )
    lines = bench.table(["median / p95, us", *states], rows).splitlines()
    signals = states["busy"]["signals"]
    return [
        *lines,
        f"the same without a GPU: {without['wall_median_us']} / {without['wall_p95_us']} (wall)",
        "busy: " + ", ".join(f"{field} {value}" for field, value in signals.items()),
    ]


def cells(cost: dict[str, float] | None) -> str:
    return "unsupported" if cost is None else f"{cost['median_us']} / {cost['p95_us']}"
