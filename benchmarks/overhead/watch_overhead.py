"""What does it cost to be watched, and to watch? ``pipetune watch`` and a job with 16 loader workers.

Promise: a job watched twice a second loses under 0.5 % of its step rate; watching takes under 0.5 % of a core, 60 MB.

1. Cost. A job with 16 loader workers is watched by the real command, as JSON lines and as the live view on a terminal
   of 120 x 40, once with an accelerator that never waits and once with one that is starved, so that stacks are taken.
   Counted is all CPU time of the command and of the py-spy processes that it starts, as the kernel accounts it, from
   the third second on, and for the starved job from the fortieth on: until then the first stacks are taken, which are
   paid from a budget of 0.3 s of CPU time. The CPU time before that is in the table.
   The same once more beside a job with 3,000 threads that sleep.
2. What the job loses. Its workers decode without a pause on all cores, and its steps are counted while the command runs
   (1 s) and while it is stopped (SIGSTOP, half a second before and half after), so that a drift of the machine falls on
   both. Reported is the median of on/off over the rounds with its 95 % bootstrap interval. The promise holds where the
   median is 0.995 at least; ``--quick`` has too few rounds for that and asks that the interval does not lie below it.

A command that was stopped takes a reading as soon as it runs again, because that reading is overdue, and another at its
next turn: in a second in which it runs it takes one reading more than its interval says. It therefore gets an interval
of 1 s here, which comes to the two readings a second of a command that is never stopped, and windows of 20 s, of which
it runs for ten. The CPU time per second of both is printed.

Blocks are short, because the machine's own pace wanders by several percent within seconds: many pairs of neighbours
resolve a small difference better than few long ones.

``--quick`` takes about 7 minutes, the full run about 30.
"""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

MAX_LOSS, MAX_CORE_FRAC, MAX_BYTES = 0.005, 0.005, 60e6
WORKERS = 16
ON_S, OFF_S = 1.0, 0.5
#: CPU time of one stack (s).
STACK_CPU_S = 0.012
JOB = Path(__file__).with_name("watched_job.py")


def main(options: Namespace) -> bench.Result:
    seconds, rounds = (30.0, 60) if options.quick else (120.0, 500)
    costs = []
    for kind, settle_s in (("fed", 3.0), ("threaded", 3.0), ("starved", 40.0)):
        for view in ("json",) if kind == "threaded" else ("json", "live"):
            with job(kind) as (pid, _):
                costs.append({"job": kind, "view": view, **cost(pid, view, settle_s, seconds)})
    rates = losses(rounds, 60.0)
    rows = [
        [
            f"{found['job']}, {found['view']}", f"{found['core_frac']:.3%}", f"{found['looking_core_frac']:.3%}",
            str(found["stacks"]), f"{found['start_cpu_s']:.2f}", f"{found['rss_bytes'] / 1e6:.1f}",
        ]
        for found in costs
    ]  # fmt: skip
    heads = ["watching", "of a core", "without stacks", "stacks", "before, CPU s", "memory, MB"]
    print(bench.table(heads, rows))
    low, high = rates["ratio_ci95"]
    print(
        f"\nsteps/s watched / not watched: {rates['ratio']:.4f}, 95 % interval {low:.4f} to {high:.4f} "
        f"({rounds} rounds of {ON_S + 2 * OFF_S:g} s)\nof a core, per second that it ran: {rates['on_core_frac']:.3%}; "
        f"without stops: {rates['free_core_frac']:.3%}"
    )
    holds = (
        all(found["core_frac"] < MAX_CORE_FRAC and found["rss_bytes"] < MAX_BYTES for found in costs)
        and (high if options.quick else rates["ratio"]) >= 1 - MAX_LOSS
    )
    return bench.Result(holds, {"cost": costs, "rate": rates, "workers": WORKERS})


def cost(pid: int, view: str, settle_s: float, seconds: float) -> dict[str, Any]:
    """CPU time and memory of the command that watches ``pid``, from ``settle_s`` on."""
    with watching(pid, view) as process:
        time.sleep(settle_s)
        start_s, before = bench.cpu_s(process.pid, children=True), time.perf_counter()
        own_before_s = bench.cpu_s(process.pid)
        time.sleep(seconds)
        wall_s = time.perf_counter() - before
        end_s, own_end_s = bench.cpu_s(process.pid, children=True), bench.cpu_s(process.pid)
        peak_bytes = bench.peak_memory_bytes(process.pid)
    stack_s = (end_s - start_s) - (own_end_s - own_before_s)
    return {
        "seconds": wall_s,
        "core_frac": (end_s - start_s) / wall_s,
        "looking_core_frac": (own_end_s - own_before_s) / wall_s,
        "stacks": round(stack_s / STACK_CPU_S),
        "start_cpu_s": start_s,
        "rss_bytes": peak_bytes,
    }


def losses(rounds: int, settle_s: float) -> dict[str, Any]:
    """The job's step rate with the command running and stopped, and the command's CPU time while it ran."""
    with job("saturated") as (pid, _), watching(pid, "json") as process:
        time.sleep(settle_s)
        free_core_frac = core_frac(process.pid, settle_s)
    ratios, on_s = [], 0.0
    with job("saturated") as (pid, steps), watching(pid, "json", interval_s=1.0, window_s=20.0) as process:
        time.sleep(settle_s)
        before_s = bench.cpu_s(process.pid, children=True)
        for _ in range(rounds):
            process.send_signal(signal.SIGSTOP)
            before = rate(steps, OFF_S)
            process.send_signal(signal.SIGCONT)
            on = rate(steps, ON_S)
            process.send_signal(signal.SIGSTOP)
            ratios.append(2 * on / (before + rate(steps, OFF_S)))
            on_s += ON_S
        process.send_signal(signal.SIGCONT)
        on_core_frac = (bench.cpu_s(process.pid, children=True) - before_s) / on_s
    return {
        "ratio": median(ratios),
        "ratio_ci95": bench.bootstrap_ci95(ratios),
        "on_core_frac": on_core_frac,
        "free_core_frac": free_core_frac,
        "rounds": [round(ratio, 4) for ratio in ratios],
    }


def rate(steps: Callable[[], int], seconds: float) -> float:
    """Steps per second in the next ``seconds``."""
    began, done = time.perf_counter(), steps()
    time.sleep(seconds)
    return (steps() - done) / (time.perf_counter() - began)


def core_frac(pid: int, seconds: float) -> float:
    began, before_s = time.perf_counter(), bench.cpu_s(pid, children=True)
    time.sleep(seconds)
    return (bench.cpu_s(pid, children=True) - before_s) / (time.perf_counter() - began)


@contextlib.contextmanager
def job(kind: str) -> Iterator[tuple[int, Any]]:
    """The job's PID, and a function that returns how many steps it has done."""
    process = subprocess.Popen(
        [sys.executable, str(JOB), kind, str(WORKERS)], stdout=subprocess.PIPE, start_new_session=True,
        env=bench.environment(),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        path = process.stdout.readline().decode().strip()
        with open(path, "rb") as counter:

            def steps() -> int:
                return int(struct.unpack("<Q", os.pread(counter.fileno(), 8, 0))[0])

            yield process.pid, steps
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def watching(pid: int, view: str, interval_s: float = 0.5, window_s: float = 10.0) -> Iterator[subprocess.Popen[bytes]]:
    """The real command; what it prints is read and thrown away."""
    command = [sys.executable, "-m", "pipetune", "watch", "--pid", str(pid), "--no-save"]
    command += ["--interval", f"{interval_s:g}s", "--window", f"{window_s:g}s"]
    environment = {**bench.environment(), "TERM": "xterm-256color"}
    if view == "live":
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
    else:
        ours, theirs = os.pipe()
        process = subprocess.Popen([*command, "--json"], stdin=subprocess.DEVNULL, stdout=theirs, env=environment)
        os.close(theirs)
    threading.Thread(target=drain, args=(ours,), daemon=True).start()
    try:
        yield process
        assert process.poll() is None, f"the watch ended by itself with {process.returncode}"
    finally:
        process.kill()
        process.wait()


def drain(fd: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(fd, 65536):
            pass
    os.close(fd)


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
