"""Readings, verdicts and windows of ``pipetune watch`` that several tests share: a job whose two workers decode."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from pipetune.diagnosis import causes
from pipetune.records.evidence import Signal, SignalValue
from pipetune.records.observation import NVML, PIPE, RUNNING, MachineReading, RankReading, TaskReading
from pipetune.records.watch import CauseShare, Stall, Verdict, Window, WorkerSummary

#: Seconds between two readings, and when the first one was taken.
INTERVAL_S = 0.5
BEGAN_NS = 10**9
PID = 4000

_TASK = TaskReading(
    pid=PID + 1, name="pt_data_worker", state="R", wait=RUNNING, wchan=None, cpu_frac=0.95, run_delay_frac=0.02,
    read_bytes=0, read_chars=1_000_000, write_chars=1_000_000,
)  # fmt: skip
_MAIN = replace(
    _TASK, pid=PID, name="python", state="S", wait=PIPE, wchan="poll_schedule_timeout", cpu_frac=0.1, run_delay_frac=0.0
)
_RANK = RankReading(
    t_ns=BEGAN_NS, interval_s=INTERVAL_S, pid=PID, rank=None, main=_MAIN, process_cpu_frac=0.15,
    workers=(_TASK, replace(_TASK, pid=PID + 2)), worker_kind="process", youngest_worker_s=60.0, pin=None,
    has_sockets=False, source=NVML, busy_frac=0.4, active_frac=None, idle_now=None, gpu=None, stack=None, tree=None,
)  # fmt: skip
_MACHINE = MachineReading(
    t_ns=BEGAN_NS, interval_s=INTERVAL_S, cpu_busy_pct=96.0, cpu_idle_pct=4.0, cpu_iowait_pct=0.0,
    psi_cpu_some_pct=12.0, psi_io_some_pct=0.0, psi_memory_some_pct=0.0, psi_scope="machine", cores=2.0,
    quota_cores=None, throttled_frac=None, net_rx_bytes=0, cost_s=0.001,
)  # fmt: skip
_WORKER = WorkerSummary(
    pid=PID + 1, cpu_frac=0.95, run_delay_frac=0.02, waits={PIPE: 0.03}, state="R", wchan=None
)  # fmt: skip
_VERDICT = Verdict(
    rank=None, pid=PID, seconds=10.0, source=NVML, util_frac=0.4, lost_frac=0.6, lost_ci95=(0.55, 0.65),
    cause=causes.CPU_DECODE, confidence="high",
    shares=(
        CauseShare(cause=causes.CPU_DECODE, share=0.9, ci95=(0.8, 0.96)),
        CauseShare(cause=causes.MAIN_PYTHON, share=0.1, ci95=(0.04, 0.2)),
    ),
    sentence="60 % of the accelerator's time is lost, 90 % of that to decoding on the CPU",
    evidence=("2 loader worker processes, each on a core 95 % of the time", "CPU busy 96 %, idle 4 %"),
    signals=(SignalValue(signal=Signal.WORKERS, value=2), SignalValue(signal=Signal.CPU, value=96.0)),
    advice="num_workers 2 -> 5: the workers are 97 % busy, full speed needs the work of 4.9 workers",
    missing=("stacks: py-spy is not installed; pip install py-spy",), missing_signals=(Signal.STACKS,),
    activities={"waits for the loader": 0.6, "waits for the accelerator": 0.4},
    workers=(_WORKER, replace(_WORKER, pid=PID + 2)), looks=20, stacks=0,
)  # fmt: skip
_STALL = Stall(
    rank=None, pid=PID, t_start_ns=BEGAN_NS, t_end_ns=BEGAN_NS + 2 * 10**9, lost_s=1.9, cause=causes.CPU_DECODE
)
_WINDOW = Window(
    number=1, started_unix_s=1_700_000_000.0, seconds=10.0, verdicts=(_VERDICT,), stalls=(), cpu_busy_pct=96.0,
    cpu_idle_pct=4.0, cpu_iowait_pct=0.0, psi_cpu_some_pct=12.0, psi_io_some_pct=0.0, psi_memory_some_pct=0.0,
    psi_scope="machine", throttled_frac=None, cores=2.0, own_core_frac=0.003, own_rss_bytes=50 * 2**20,
)  # fmt: skip


def task_reading(**changes: Any) -> TaskReading:
    """A loader worker that decodes: on a core 95 % of the time."""
    return replace(_TASK, **changes)


def main_reading(**changes: Any) -> TaskReading:
    """A main thread that waits for its loader."""
    return replace(_MAIN, **changes)


def workers(count: int, **changes: Any) -> tuple[TaskReading, ...]:
    """So many of them, with the PIDs that follow the rank's."""
    return tuple(task_reading(pid=PID + 1 + number, **changes) for number in range(count))


def rank_reading(**changes: Any) -> RankReading:
    """A rank whose accelerator is busy 40 % of the time, with two worker processes."""
    return replace(_RANK, **changes)


def machine_reading(**changes: Any) -> MachineReading:
    """Two cores, nearly all of them used."""
    return replace(_MACHINE, **changes)


def rank_readings(busy: list[float | None], **changes: Any) -> list[RankReading]:
    """Consecutive readings, each with its share of busy time; the last one ends ``len(busy)`` intervals later."""
    step_ns = round(1e9 * changes.get("interval_s", INTERVAL_S))
    return [
        rank_reading(**{"t_ns": BEGAN_NS + (number + 1) * step_ns, "busy_frac": share} | changes)
        for number, share in enumerate(busy)
    ]


def machine_readings(count: int, **changes: Any) -> list[MachineReading]:
    """As many readings of the machine, one after the other."""
    step_ns = round(1e9 * changes.get("interval_s", INTERVAL_S))
    return [machine_reading(**{"t_ns": BEGAN_NS + (number + 1) * step_ns} | changes) for number in range(count)]


def worker_summary(**changes: Any) -> WorkerSummary:
    """What a worker that decodes did in a window."""
    return replace(_WORKER, **changes)


def verdict(**changes: Any) -> Verdict:
    """Of ten seconds: 60 % lost, nearly all of it to decoding on the CPU."""
    if "evidence" in changes and "signals" not in changes:
        changes["signals"] = (SignalValue(signal=Signal.STACKS, value=1.0),) * len(changes["evidence"])
    return replace(_VERDICT, **changes)


def stall(**changes: Any) -> Stall:
    """Two seconds of no work."""
    return replace(_STALL, **changes)


def window(**changes: Any) -> Window:
    """Ten seconds of one rank, without a stall that ended in it."""
    return replace(_WINDOW, **changes)


@dataclass
class FakeWatcher:
    """What a view asks of a watcher: one rank per list of readings."""

    readings: list[list[RankReading]] = field(default_factory=list)
    machine: deque[MachineReading] = field(default_factory=lambda: deque(machine_readings(20)))
    stalls: list[Stall] = field(default_factory=list)
    stalled_since: dict[int, int] = field(default_factory=dict)

    @property
    def history(self) -> FakeWatcher:
        return self

    def readings_of(self, pid: int) -> list[RankReading]:
        return [reading for readings in self.readings for reading in readings if reading.pid == pid]

    def stalled_since_ns(self, pid: int) -> int | None:
        return self.stalled_since.get(pid)
