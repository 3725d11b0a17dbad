"""Stage ``watch``: does ``pipetune watch`` name what bounds a job, and does it slow the job?

Three jobs of one plain training script: starved (no workers), fed (many workers, small images), and device-bound (a
large model). Each trains until its rate is logged, is watched for one window, and then trains on for a while.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.bench import ROOT
from benchmarks.gpu.commands import NotDone, ProgramFailed, report, run_command
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.workloads import COPIES, IS_SMALL, SLOW_MODEL, training_words, usable_cores
from pipetune.diagnosis.causes import CPU_DECODE, HEALTHY, NO_WORKERS
from tests.photo_set import small_photos

#: Window of a verdict, time unwatched before and after it, and the longest time until the job trains (s).
_WINDOW_S, _UNWATCHED_S, _START_S = 8.0, 3.0, 25.0
#: Their shares of a job's time: with torch, CUDA, the model and workers, a job trains after about ten seconds.
_WINDOW_FRAC, _UNWATCHED_FRAC, _START_FRAC = 0.25, 0.08, 0.6
#: A job is slowed where it keeps less than this of its rate; rates of one second scatter by some per cent.
_KEPT_FRAC = 0.9
_RATE = re.compile(r"rate (\d+\.\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job whose bottleneck is known."""

    name: str
    words: tuple[str, ...]
    expected: tuple[str, ...]
    """Causes of which the verdict has to be one."""


def list_jobs() -> list[Job]:
    """The jobs, for the cores of this machine."""
    many = str(max(2, min(12, usable_cores() - 2)))
    return [
        Job(name="starved", words=("--workers", "0"), expected=(NO_WORKERS, CPU_DECODE)),
        Job(name="device-bound", words=("--workers", many, "--model", SLOW_MODEL), expected=(HEALTHY,)),
        Job(name="fed", words=("--workers", many), expected=(HEALTHY,)),
    ]


def run_stage(findings: Findings) -> None:
    """Watch each job within an equal share of the time; in a rehearsal the first one, whose verdict is open."""
    jobs = list_jobs() if findings.is_cuda and not IS_SMALL else list_jobs()[:1]
    with TemporaryDirectory() as folder:
        data = small_photos(Path(folder, "photos"), copies=COPIES)
        for number, job in enumerate(jobs):
            watch_job(findings, job, data, findings.remaining_s / (len(jobs) - number))


def watch_job(findings: Findings, job: Job, data: Path, share_s: float) -> None:
    """Start the job, watch it, compare the verdict and the rates."""
    window_s = min(_WINDOW_S, _WINDOW_FRAC * share_s)
    with running(training_words(findings.is_cuda, data, *job.words)) as training:
        if not training.wait_for_rates(2, min(_START_S, _START_FRAC * share_s)):
            findings.report_unproven(
                f"the verdict of a {job.name} job", f"it did not train in time: {training.last_line}"
            )
            return
        time.sleep(min(_UNWATCHED_S, _UNWATCHED_FRAC * share_s))
        began = time.monotonic()
        try:
            lines = ask_watch(findings, training.pid, window_s)
        except NotDone as error:
            report(findings, f"the verdict of a {job.name} job", error)
            return
        ended = time.monotonic()
        time.sleep(min(_UNWATCHED_S, _UNWATCHED_FRAC * share_s))
        rates = training.list_rates()
    # The first logged rate has the warm-up in it.
    watched = [rate for at, rate in rates[1:] if began + 1 < at <= ended]
    unwatched = [rate for at, rate in rates[1:] if not began < at <= ended + 1]
    window = next(line for line in lines if line.get("kind") == "window")
    verdict = (window.get("verdicts") or [{}])[0]
    row = {
        "expected": job.expected,
        "cause": verdict.get("cause"),
        "lost_frac": verdict.get("lost_frac"),
        "watched_per_s": fmean(watched) if watched else None,
        "unwatched_per_s": fmean(unwatched) if unwatched else None,
        "lines": lines,
    }
    findings.append("jobs", {"job": job.name, **row})
    findings.say(
        f"{job.name}: {row['cause']}, lost {row['lost_frac']}, rate watched {row['watched_per_s']}, "
        f"unwatched {row['unwatched_per_s']}"
    )
    if not findings.is_cuda or IS_SMALL:
        return
    if row["cause"] not in job.expected:
        findings.report_problem(f"a {job.name} job was said to be {row['cause']}, expected {' or '.join(job.expected)}")
    judge_rates(findings, job.name, watched, unwatched)


def judge_rates(findings: Findings, name: str, watched: Sequence[float], unwatched: Sequence[float]) -> None:
    """Whether the job was slower while it was watched."""
    if not watched or not unwatched:
        findings.report_unproven(f"a {name} job keeps its pace", "it logged no rate while it was watched, or before")
    elif fmean(watched) < _KEPT_FRAC * fmean(unwatched):
        findings.report_problem(
            f"a {name} job had {fmean(watched):.0f} samples/s while it was watched, {fmean(unwatched):.0f} otherwise"
        )


def ask_watch(findings: Findings, pid: int, window_s: float) -> list[dict[str, Any]]:
    """What ``pipetune watch --once --json`` prints: how it found the GPU, one window, and the end.

    Raises:
        NotDone: it gave no window in time, or none at all.
    """
    lines: list[dict[str, Any]] = []
    words = ["watch", "--once", "--json", "--no-save", "--pid", str(pid), "--window", f"{window_s:.1f}s"]
    command = [sys.executable, "-m", "pipetune", *words]
    code = run_command(findings, command, window_s + 12, on_line=lines.append)
    if any(line.get("kind") == "window" for line in lines):
        return lines
    if code is None:
        raise NotDone("watch was not done in time")
    raise ProgramFailed(f"watch gave no window (exit code {code})")


class Training:
    """A job that runs: its rates as it logs them, with the times at which it did."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self.last_line = ""
        self._rates: list[tuple[float, float]] = []
        self._process = process
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for_rates(self, count: int, limit_s: float) -> bool:
        """Wait until it has logged so many rates; ``False``: it has not, or has ended."""
        deadline = time.monotonic() + limit_s
        while len(self._rates) < count and time.monotonic() < deadline and self._process.poll() is None:
            time.sleep(0.1)
        return len(self._rates) >= count

    def list_rates(self) -> list[tuple[float, float]]:
        """Time (s, monotonic) and rate (samples/s)."""
        return list(self._rates)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(line, end="", flush=True)
            self.last_line = line.strip() or self.last_line
            if matched := _RATE.search(line):
                self._rates.append((time.monotonic(), float(matched[1])))


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[Training]:
    """The job, which is ended with all its workers."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        yield Training(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
