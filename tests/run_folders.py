"""Run folders with known contents: what a sweep or a watch would have written, in a moment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipetune.candidates.space import Space
from pipetune.records.observation import Reading, TreeReading
from pipetune.records.sweep import Outcome, StepTime
from pipetune.records.watch import Stall, WatchResult, WatchStart, Window
from pipetune.store.folder import RunFolder
from pipetune.store.read import timeline_name
from pipetune.store.watch_log import WatchLog
from pipetune.sweeping.result_json import to_json
from tests.fakes import outcome
from tests.unit.sweeping.test_result import sweep_result

BEGAN_NS = 5 * 10**9
#: A step every 0.1 s, of which the accelerator works 0.06 s; the last 30 are the timed ones.
STEPS, WARMUP, PERIOD_S, WORK_S = 40, 10, 0.1, 0.06
IDLE_FRAC = 1 - WORK_S / PERIOD_S
TIMED: dict[str, Any] = {
    "steps": STEPS - WARMUP, "samples": 64 * (STEPS - WARMUP), "warmup_batches": WARMUP,
    "timed_s": PERIOD_S * (STEPS - WARMUP), "accelerator_idle_frac": IDLE_FRAC, "data_wait_frac": 0.9,
}  # fmt: skip


def steps(count: int = STEPS, *, period_s: float = PERIOD_S, work_s: float = WORK_S) -> list[StepTime]:
    """Steps that wait for their batch until the accelerator has been idle for the rest of each period."""
    made = []
    for number in range(count):
        end_ns = BEGAN_NS + round((number + 1) * period_s * 1e9)
        made.append(
            StepTime(
                t_start_ns=end_ns - round(period_s * 1e9), data_wait_s=period_s - work_s, h2d_s=None, compute_s=work_s,
                idle_s=0.0 if number == 0 else period_s - work_s, t_end_ns=end_ns, samples=64,
            )
        )  # fmt: skip
    return made


def readings(count: int = 40, *, interval_s: float = 0.1, **changes: Any) -> list[Reading]:
    """One core of two at work, 12 % pressure."""
    values: dict[str, Any] = {
        "cpu_busy_pct": 50.0, "cpu_idle_pct": 48.0, "cpu_iowait_pct": 2.0, "psi_cpu_some_pct": 12.0,
        "psi_io_some_pct": 1.0, "psi_memory_some_pct": 0.0, "gpu": None, "tick_cost_s": 0.0002, **changes,
    }  # fmt: skip
    return [
        Reading(
            t_ns=BEGAN_NS + round((number + 1) * interval_s * 1e9), interval_s=interval_s,
            tree=TreeReading(
                processes=3, cpu_s=10 + number * interval_s, run_delay_s=None, minor_faults=5, context_switches=None,
                read_bytes=None, rss_bytes=10**8, in_disk_sleep=0,
            ),
            **values,
        )
        for number in range(count)
    ]  # fmt: skip


CEILING = outcome("pillow", 0, rate=1250.0, role="ceiling", goodput=None, goodput_ci95=None)
DEFAULT = outcome("pillow", 0, rate=640.0, role="baseline", **TIMED)
TUNED = outcome("opencv", 2, rate=1240.0, **TIMED | {"accelerator_idle_frac": 0.0, "data_wait_frac": 0.1})


def sweep_folder(
    path: Path, outcomes: Sequence[Outcome] = (CEILING, DEFAULT, TUNED), *, result: bool = True, **changes: Any
) -> Path:
    """A finished sweep, with a timeline per outcome that was measured.

    Args:
        path: is made.
        outcomes: in the order of time.
        result: it came to its end.
        changes: of the result, as ``sweep_result`` takes them.
    """
    path.mkdir(parents=True)
    found = sweep_result(*outcomes, **changes)
    space = Space(
        backends=("pillow", "opencv"), workers=(0, 1, 2), prefetch=(2,), batch_size=64, pin_memory=False
    )  # fmt: skip
    with RunFolder(path) as folder:
        folder.write_json(
            "run.json",
            {
                "kind": "sweep", "pipetune": "0.1.0", "started": "2026-01-31T18:45:00+00:00",
                "command": "pipetune sweep --dataset '<b>'", "cwd": "/home", "options": {"dataset": "<b>", "seed": 0},
                "workload": {
                    "dataset": found.dataset["name"], "model": "resnet50", "image_size": 224, "precision": "fp32",
                    "seconds": 4.0, "cache": "warm", "seed": 0,
                    "accelerator": {"kind": "emulated", "name": "EMULATED v100", "rate_samples_per_s": 1250.0},
                },
                "goal": {"target": found.goal.target, "metric": found.goal.metric},
                "space": {
                    "backends": space.backends, "workers": space.workers, "prefetch": space.prefetch, "batch_size": 64,
                    "pin_memory": False, "default_backend": "pillow",
                },
                "host": {"cores_usable": 2.0, "hostname": "here", "versions": {"torch": "2.14.1"}}, "gpus": [],
            },
        )  # fmt: skip
        for one in outcomes:
            folder.append_outcome(one)
            if one.measurement is not None:
                folder.append_timeline(timeline_name(one), "step", steps())
                folder.append_timeline(timeline_name(one), "reading", readings())
        if result:
            folder.write_json("result.json", to_json(found))
    return path


def watch_folder(
    path: Path, windows: Sequence[Window], stalls: Sequence[Stall] = (), *, log: Path | None = None, end: bool = True
) -> Path:
    """A watch of one process: its windows, its stalls and 20 s of readings."""
    path.mkdir(parents=True)
    with RunFolder(path) as folder:
        written = WatchLog(folder, log)
        written.start(
            WatchStart(
                pipetune="0.1.0", pid=4000, title="train.py <i>", job_command=("python", "train.py"),
                found="named by its number", interval_s=0.5, window_s=10.0, unix_s=1.7e9, monotonic_ns=BEGAN_NS,
                host={"cores_usable": 2.0},
            )
        )  # fmt: skip
        for reading in readings(40, interval_s=0.5):
            written.readings([(windows[0].verdicts[0].rank if windows else None, 4000, reading)])
        for window in windows:
            written.window(window)
        for stall in stalls:
            written.stall(stall)
        if end:
            verdicts = windows[-1].verdicts if windows else ()
            written.end(WatchResult(reason="the time is up", verdicts=verdicts, stalls=len(stalls), stalled_s=2.0))
    return path
