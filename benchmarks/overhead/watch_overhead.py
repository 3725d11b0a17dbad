"""What does it cost to be watched, and to watch? ``pipetune watch`` beside a job with 16 loader workers.

Promise: at two looks a second the watched job loses less than 0.5 % of its step rate, and pipetune itself uses less
than 0.5 % of one core and less than 60 MB of memory.

1. Cost. A job with 16 loader workers is watched by the real command, as JSON lines and as the live view on a terminal
   of 120 x 40, once with an accelerator that is kept fed and once with one that starves, so that stacks are taken.
   Counted is all processor time of the command and of the py-spy processes that it starts, as the kernel bills it, from
   the third second on, and for the starving job from the fortieth on: until then the first stacks are taken, which are
   paid from a purse of 0.3 s of processor time. What was used before is in the table.
2. What the job loses. Its workers decode without a pause on all cores, and its steps are counted while the command runs
   (1 s) and while it is stopped (SIGSTOP, half a second before and half after), so that a drift of the machine falls on
   both. Reported is the median of on/off over the rounds with its 95 % bootstrap interval. The promise holds where the
   median is 0.995 at least; ``--quick`` has too few rounds for that and asks that the interval does not lie below it.

A command that was stopped looks at once when it goes on, because its look is overdue, and again at its next turn: in a
second that it runs it looks once more than its interval says. It therefore gets an interval of 1 s here, which comes to
the two looks a second of a command that nobody stops, and windows of 20 s, of which it runs for ten. The processor time
that both took for a second is printed.

Blocks are short, because the machine's own pace wanders by several percent within seconds: many pairs of neighbours
tell a small difference better than few long ones.

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
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.overhead.sampler_overhead import bootstrap_ci95

PROMISE_LOSS, PROMISE_CORE_FRAC, PROMISE_BYTES = 0.005, 0.005, 60e6
WORKERS = 16
ON_S, OFF_S = 1.0, 0.5
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
JOB = Path(__file__).with_name("watched_job.py")
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    options = bench.arguments(__doc__)
    seconds, rounds = (30.0, 60) if options.quick else (120.0, 500)
    costs = []
    for kind, settle_s in (("fed", 3.0), ("starved", 40.0)):
        for view in ("json", "live"):
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
        all(found["core_frac"] < PROMISE_CORE_FRAC and found["rss_bytes"] < PROMISE_BYTES for found in costs)
        and (high if options.quick else rates["ratio"]) >= 1 - PROMISE_LOSS
    )
    print(f"promise: {'holds' if holds else 'DOES NOT HOLD'}")
    bench.write(options.json, "watch_overhead", holds, {"cost": costs, "rate": rates, "workers": WORKERS})
    return 0 if holds else 1


def cost(pid: int, view: str, settle_s: float, seconds: float) -> dict[str, Any]:
    """Of the command that watches ``pid``, after ``settle_s``."""
    with watching(pid, view) as process:
        time.sleep(settle_s)
        start_s, before = used_s(process.pid), time.perf_counter()
        own_before = used_s(process.pid, children=False)
        time.sleep(seconds)
        wall_s = time.perf_counter() - before
        end_s, own_end = used_s(process.pid), used_s(process.pid, children=False)
        rss = rss_bytes(process.pid)
    stack_s = (end_s - start_s) - (own_end - own_before)
    return {
        "seconds": wall_s,
        "core_frac": (end_s - start_s) / wall_s,
        "looking_core_frac": (own_end - own_before) / wall_s,
        "stacks": round(stack_s / 0.012),
        "start_cpu_s": start_s,
        "rss_bytes": rss,
    }


def losses(rounds: int, settle_s: float) -> dict[str, Any]:
    """The job's step rate with the command running and stopped, and what the command took while it ran."""
    with job("saturated") as (pid, _), watching(pid, "json") as process:
        time.sleep(settle_s)
        free_core_frac = core_frac(process.pid, settle_s)
    ratios, on_s = [], 0.0
    with job("saturated") as (pid, steps), watching(pid, "json", interval_s=1.0, window_s=20.0) as process:
        time.sleep(settle_s)
        used_before_s = used_s(process.pid)
        for _ in range(rounds):
            process.send_signal(signal.SIGSTOP)
            before = rate(steps, OFF_S)
            process.send_signal(signal.SIGCONT)
            on = rate(steps, ON_S)
            process.send_signal(signal.SIGSTOP)
            ratios.append(2 * on / (before + rate(steps, OFF_S)))
            on_s += ON_S
        process.send_signal(signal.SIGCONT)
        on_core_frac = (used_s(process.pid) - used_before_s) / on_s
    return {
        "ratio": median(ratios),
        "ratio_ci95": bootstrap_ci95(ratios),
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
    began, before_s = time.perf_counter(), used_s(pid)
    time.sleep(seconds)
    return (used_s(pid) - before_s) / (time.perf_counter() - began)


@contextlib.contextmanager
def job(kind: str) -> Iterator[tuple[int, Any]]:
    """The job's number, and a function that tells how many steps it has done."""
    process = subprocess.Popen(
        [sys.executable, str(JOB), kind, str(WORKERS)], stdout=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
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
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
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


def used_s(pid: int, *, children: bool = True) -> float:
    """Processor time of a process and, of its children, of those that have ended (s)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if children else 13]) * TICK_S


def rss_bytes(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    sys.exit(main())
