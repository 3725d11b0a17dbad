"""The texts that a person reads, each made from records: no machine, no clock, no process has a part in them."""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pipetune.candidates.space import Space
from pipetune.cli.compare import compare_command
from pipetune.cli.doctor import text_lines
from pipetune.cli.sweep_print import print_summary
from pipetune.diagnosis.combine import whole_run, worst_first
from pipetune.doctor.findings import Finding
from pipetune.records.observation import EMULATED, GpuReading, GpuSharing, RankReading
from pipetune.records.set_up import SetUp
from pipetune.records.sweep import AcceleratorSpec, Candidate, Failure, Outcome
from pipetune.report import exports
from pipetune.report.terminal.watch_live import LiveView
from pipetune.report.terminal.watch_text import stall_line, summary_lines, verdict_lines, window_line
from pipetune.runs.load import load
from tests.fakes import outcome
from tests.run_folders import sweep_folder
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, scene
from tests.unit.sweeping.test_result import sweep_result
from tests.watch_fakes import FakeWatcher, machine_readings, main_reading, rank_readings, stall, window, workers

WIDTH = 100
_LONG = 100_000

_CEILING = outcome("pillow", 0, rate=1250.0, role="ceiling", goodput=None, goodput_ci95=None)
_DEFAULT = outcome("pillow", 0, rate=500.0, role="baseline", cpu_busy_pct=52.0, cores_used=1.0)
_BEST = outcome("opencv", 2, rate=1200.0, cores_used=1.4)
_LITTLE = outcome("opencv", 2, rate=510.0, cpu_busy_pct=60.0)
_WITH_DEFAULT = Space(backends=("pillow", "opencv"), workers=(0, 2), prefetch=(2,), batch_size=64, pin_memory=False)
_ONE = Space(backends=("opencv",), workers=(2,), prefetch=(2,), batch_size=64, pin_memory=False)


def _sweep(*outcomes: Outcome, notes: tuple[str, ...] = (), **changes: Any) -> str:
    stream = io.StringIO()
    found = sweep_result(*outcomes, **{"seconds": 95.0} | changes)
    print_summary(Console(file=stream, width=_LONG), found, notes)
    return stream.getvalue()


def sweep_met() -> str:
    beside = [replace(found, block=1) for found in (_DEFAULT, _BEST)]
    return _sweep(_CEILING, _DEFAULT, _BEST, *beside, space=_ONE)


def sweep_missed() -> str:
    slow = outcome("opencv", 2, rate=1050.0, cpu_busy_pct=70.0, cores_used=1.2)
    noted = "no GPU here: an EMULATED accelerator takes its place"
    return _sweep(_CEILING, _DEFAULT, slow, space=replace(_ONE, workers=(1, 2)), notes=(noted,))


def sweep_tie() -> str:
    tied = outcome("simplejpeg", 2, rate=1201.0, cores_used=1.4)
    outcomes = [replace(found, block=block) for block in (0, 1, 2) for found in (_DEFAULT, _BEST, tied)]
    return _sweep(_CEILING, *outcomes, space=replace(_ONE, backends=("opencv", "simplejpeg")))


def sweep_undecided() -> str:
    close = outcome("opencv", 2, rate=1130.0, other_cores=0.7, other_process="python (4711)")
    slow = outcome("torchvision", 2, rate=700.0, machine_speed_before=100.0, machine_speed_after=100.0)
    noisy = outcome("torchvision", 1, rate=400.0, warnings=("not steady after 13 warm-up batches",))
    return _sweep(_CEILING, _DEFAULT, close, slow, noisy)


def sweep_failed() -> str:
    broken = Failure(kind="crashed", phase="open", message="ImportError: libGL.so.1", hint="apt-get install libgl1")
    lacking = Failure(kind="shm", phase="spawn", message="needs 2.1 GiB of shared memory, 64 MiB are there",
                      hint="docker run --shm-size=8g")  # fmt: skip
    large = Candidate(backend="opencv", num_workers=8, prefetch_depth=4, batch_size=64)
    return _sweep(
        _CEILING, outcome("pillow", 0, role="baseline", failure=broken), outcome("opencv", 2, failure=broken),
        does_not_fit=((large, lacking),),
    )  # fmt: skip


def sweep_interrupted() -> str:
    return _sweep(_CEILING, _DEFAULT, outcome("opencv", 1, rate=800.0), stopped="interrupted")


def sweep_nothing_suffices() -> str:
    best = outcome("opencv", 2, rate=600.0, cpu_busy_pct=98.0, cpu_s_per_1000_samples=3.3, cores_used=1.98)
    beside = [replace(found, block=1) for found in (_DEFAULT, best)]
    return _sweep(_CEILING, _DEFAULT, best, *beside, space=_ONE)


def sweep_stays() -> str:
    """One that is a little faster side by side, by less than its interval."""
    beside = [replace(found, block=block) for block in (0, 1, 2) for found in (_DEFAULT, _LITTLE)]
    return _sweep(_CEILING, *beside, space=_WITH_DEFAULT)


def sweep_too_noisy() -> str:
    noisy = [
        replace(found, block=block, measurement=replace(found.measurement, ci95=(0.4 * rate, 1.6 * rate)))
        for block in (0, 1, 2, 3)
        for found, rate in ((_DEFAULT, 500.0), (_LITTLE, 510.0))
        if found.measurement
    ]
    return _sweep(_CEILING, *noisy, space=_WITH_DEFAULT)


def sweep_leaner() -> str:
    """The default suffices, and another candidate delivers as much with less memory."""
    fed = {"ceiling": 1250.0, "ci95": (1248.0, 1252.0), "goodput_ci95": (0.998, 1.0), "accelerator_idle_frac": 0.0}
    own = outcome("pillow", 0, rate=1250.0, role="baseline", pss_bytes=2**31, **fed)
    lean = outcome("opencv", 2, rate=1250.0, pss_bytes=2**30, **fed)
    beside = [replace(one, block=block) for block in (0, 1) for one in (own, lean)]
    return _sweep(_CEILING, *beside, space=_WITH_DEFAULT)


def sweep_on_gpu() -> str:
    """Decoding on the CPU beside decoding on the GPU, whose contexts take most of the sweep's time."""
    stages = SetUp(start_s=0.02, import_s=0.3, context_s=2.1, model_s=0.6, warm_up_s=3.4)
    on_cpu, on_gpu = (
        outcome(
            backend, 4, rate=rate, cores_used=cores, set_up=stages, gpu_power_w=power_w, gpu_clock_mhz=1980.0,
            jpeg_util_pct=jpeg_pct, pcie_rx_bytes_per_s=rx, pcie_tx_bytes_per_s=2.1e6,
            energy_j_per_1000_samples=1000 * power_w / rate, energy_ci95=(900 * power_w / rate, 1100 * power_w / rate),
        )
        for backend, rate, cores, power_w, jpeg_pct, rx in (
            ("opencv", 1100.0, 3.9, 310.0, 0.0, 660e6), ("dali", 1200.0, 0.4, 420.0, 37.0, 132e6),
        )
    )  # fmt: skip
    gpu = AcceleratorSpec(kind="cuda", name="NVIDIA H100 80GB HBM3", device_index=0)
    space = replace(_ONE, backends=("opencv", "dali"), workers=(4,))
    return _sweep(_CEILING, _DEFAULT, on_cpu, on_gpu, accelerator=gpu, space=space, seconds=40.0)


def sweep_markdown() -> str:
    with tempfile.TemporaryDirectory() as folder:
        return exports.markdown(load(sweep_folder(Path(folder) / "run", (_CEILING, _DEFAULT, _BEST))))


def compare() -> str:
    slower = outcome("opencv", 2, rate=1000.0, cores_used=1.4)
    with tempfile.TemporaryDirectory() as folder, _environment(COLUMNS=str(WIDTH)):
        before = sweep_folder(Path(folder) / "before", (_CEILING, _DEFAULT, _BEST))
        after = sweep_folder(Path(folder) / "after", (_CEILING, _DEFAULT, slower, outcome("simplejpeg", 1, rate=950.0)))
        stream = io.StringIO()
        with redirect_stdout(stream):
            compare_command(before, after)
        return stream.getvalue().replace(folder, "FOLDER")


def doctor() -> str:
    findings = (
        Finding(topic="cpu", name="model", state="ok", value="AMD EPYC 7R13"),
        Finding(topic="cpu", name="cores", state="warning", value="64 present, 2 after the quota",
                hint="set OMP_NUM_THREADS=2 in the training job, or give it more cores"),
        Finding(topic="gpu", name="--device auto", state="note", value="will be EMULATED v100"),
        Finding(topic="backends", name="dali", state="missing", value="not installed",
                hint="pip install 'pipetune[dali-cuda130]'"),
    )  # fmt: skip
    return _joined(line for line, _ in text_lines(findings, WIDTH))


def _once(readings: Sequence[RankReading], **machine: Any) -> str:
    """What ``pipetune watch --once`` prints."""
    return _joined(verdict_lines(judged(readings, **machine), width=WIDTH, title="train.py (process 4000)"))


def watch_run() -> str:
    """A log line per window and stall, and the end."""
    first = judged(scenes.DECODES, cpu_busy_pct=60.0, cpu_idle_pct=40.0)
    second = judged(scene(0.7, workers=workers(4)))
    stalls = (stall(cause=first.cause), stall(cause=first.cause, t_end_ns=5 * 10**9))
    whole = whole_run([first, second])
    assert whole is not None
    with _environment(TZ="UTC"):
        lines = [window_line(window(verdicts=(found,), stalls=stalls[:1])) for found in (first, second)]
        lines.insert(1, stall_line(stalls[0], 1_700_000_011.0))
        lines += summary_lines([whole], stalls, width=WIDTH, own_core_frac=0.0031, own_rss_bytes=52 * 2**20)
    return _joined(lines)


def watch_ranks() -> str:
    """Two ranks: one decodes too slowly, the other one waits for it."""
    slow = replace(judged(scenes.DECODES), rank=1)
    waits = replace(judged(scenes.COMMUNICATES), rank=0)
    return _joined(summary_lines(worst_first([waits, slow]), (), width=WIDTH))


def watch_live() -> str:
    found = judged(scenes.DECODES, cpu_busy_pct=60.0, cpu_idle_pct=40.0)
    busy = rank_readings([0.05, 0.9] * 40, workers=workers(4))
    watcher = FakeWatcher([busy], stalls=[stall(), stall()], machine=type(FakeWatcher().machine)(machine_readings(80)))
    view = LiveView(Console(file=io.StringIO(), width=WIDTH, height=40, force_terminal=True))
    view.compose(watcher, (found,), "train.py (process 4000)")  # type: ignore[arg-type]
    return _joined("".join(text for text, _ in line) for line in view.lines)


_CLOCKS = GpuReading(slowed_pct=0.0, power_capped_pct=0.0, sm_clock_mhz=1208, max_sm_clock_mhz=1590, power_limit_w=72.0)
_THROTTLED = scene(0.99, main=scenes.ON_CORE, gpu=replace(_CLOCKS, slowed_pct=40.0))
_POWER_CAPPED = scene(0.99, main=scenes.ON_CORE, gpu=replace(_CLOCKS, power_capped_pct=93.0))
_SHARED = scene(0.2, workers=workers(4), sharing=GpuSharing(processes=("notebook (4711)",), others_frac=0.6))
_NO_GPU = scene(None, source="loader wait", workers=workers(4))
_ASLEEP = scene(main=main_reading(wait="sleep", wchan="hrtimer_nanosleep"))

#: Name of the file -> what makes its text.
TEXTS: dict[str, Callable[[], str]] = {
    "sweep_met": sweep_met,
    "sweep_missed": sweep_missed,
    "sweep_tie": sweep_tie,
    "sweep_undecided": sweep_undecided,
    "sweep_failed": sweep_failed,
    "sweep_interrupted": sweep_interrupted,
    "sweep_nothing_suffices": sweep_nothing_suffices,
    "sweep_stays": sweep_stays,
    "sweep_too_noisy": sweep_too_noisy,
    "sweep_leaner": sweep_leaner,
    "sweep_on_gpu": sweep_on_gpu,
    "sweep_markdown": sweep_markdown,
    "compare": compare,
    "doctor": doctor,
    "watch_run": watch_run,
    "watch_ranks": watch_ranks,
    "watch_live": watch_live,
    "watch_healthy": lambda: _once(scenes.HEALTHY),
    "watch_undetermined": lambda: _once(_ASLEEP),
    "watch_no_accelerator": lambda: _once(_NO_GPU),
    "watch_emulated": lambda: _once(scene(source=EMULATED, idle_now=True, workers=workers(4))),
    "watch_too_few_readings": lambda: _once(scenes.DECODES[:5]),
    "watch_decode": lambda: _once(scenes.DECODES),
    "watch_starved": lambda: _once(scenes.STARVED, quota_cores=2.0, throttled_frac=0.4, cores=2.0),
    "watch_disk": lambda: _once(scenes.READS_DISK, psi_io_some_pct=40.0),
    "watch_network": lambda: _once(scenes.FETCHES, net_rx_bytes=8_000_000),
    "watch_no_workers": lambda: _once(scenes.LOADS_INLINE),
    "watch_worker_start": lambda: _once(scenes.STARTS_WORKERS),
    "watch_python": lambda: _once(scenes.with_stacks(scenes.PYTHON, "Python in the main thread", every=3)),
    "watch_copy": lambda: _once(scenes.COPIES),
    "watch_small_batch": lambda: _once(scenes.UNFILLED),
    "watch_checkpoint": lambda: _once(scenes.SAVES),
    "watch_throttled": lambda: _once(_THROTTLED),
    "watch_power_capped": lambda: _once(_POWER_CAPPED),
    "watch_shared": lambda: _once(_SHARED),
}


def path_of(name: str) -> Path:
    """The file with the text of that name."""
    return Path(__file__).with_name(f"{name}.txt")


def _joined(lines: Iterator[str] | Sequence[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    time.tzset()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        time.tzset()
