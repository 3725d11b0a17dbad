"""Measures a short candidate and ends it by force, for ``leaks.py``.

The child, one of its workers or its fork server is ended from a thread of the process that measures. To end that
process itself, this file is run as a program that measures one candidate and prints which phase it is in. A candidate
that is a fork has a server of its own, which is closed when it has ended: nothing of it may remain either.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.robustness.left_behind import GRACE_S, Things, own_things, settled
from pipetune.datasets.index import read_index
from pipetune.errors import Interrupted, exit_code_of
from pipetune.measure.conditions import Conditions
from pipetune.measure.fork_servers import ForkServers
from pipetune.measure.harness import Live, measure
from pipetune.records.sweep import Candidate, Outcome, Workload, from_dict, to_dict
from pipetune.registry import BACKENDS, min_workers, native_workers

SEED = 1
#: Kind of end -> the signal that the whole measuring process gets; None: something else is ended, or nothing.
KINDS = {
    "undisturbed": None, "child SIGKILL": None, "worker SIGKILL": None, "measurer SIGKILL": signal.SIGKILL,
    "measurer SIGINT": signal.SIGINT, "measurer SIGTERM": signal.SIGTERM, "server SIGKILL": None, "rank SIGKILL": None,
}  # fmt: skip
#: How a candidate is started.
NEW, FORK = "new process", "fork"
#: Phase -> longest pause after its beginning (s). The child starts when the page cache is done, and imports in "open".
#: In a fork it has imported them.
PHASES = {"page cache": 1.0, "open": 3.0, "first_batch": 0.2, "warmup": 0.8, "timed": 0.4, "close": 0.3}
FORK_OPEN_S = 0.5
WORKER_PHASES = ("first_batch", "warmup", "timed", "close")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One candidate and how it ends."""

    kind: str
    mode: str
    """``NEW`` or ``FORK``."""
    candidate: Candidate
    phase: str
    pause_s: float
    victim: int
    """A number that chooses among the workers, or the ranks."""
    ranks: int


def kinds_of(ranks: int) -> list[tuple[str, str]]:
    """Each kind of end with each way to start; a new process has no server, and one rank no others."""
    return [
        (kind, mode)
        for mode in (NEW, FORK)
        for kind in KINDS
        if (mode == FORK or not kind.startswith("server")) and (ranks > 1 or not kind.startswith("rank"))
    ]


def draw_cases(count: int, backends: list[str], ranks: int) -> Iterator[Case]:
    """Yield so many cases, the same ones in every run."""
    draw, kinds = random.Random(SEED), kinds_of(ranks)
    cases = [kinds[number % len(kinds)] for number in range(count)]
    draw.shuffle(cases)
    for kind, mode in cases:
        of_worker = kind.startswith("worker")
        backend = draw.choice([name for name in backends if not (of_worker and native_workers(BACKENDS[name]))])
        chosen = candidate(backend, draw.randint(int(of_worker), 2), draw.choice((4, 8)))
        phase = draw.choice(WORKER_PHASES if of_worker else tuple(PHASES))
        pause_s = draw.uniform(0, FORK_OPEN_S if (mode, phase) == (FORK, "open") else PHASES[phase])
        yield Case(
            kind=kind, mode=mode, candidate=chosen, phase=phase, pause_s=pause_s, victim=draw.randrange(100),
            ranks=ranks,
        )  # fmt: skip


def candidate(backend: str, workers: int, batch_size: int = 8) -> Candidate:
    workers = max(workers, min_workers(BACKENDS[backend]))
    return Candidate(
        backend=backend, num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=batch_size
    )  # fmt: skip


class Killer:
    """Ends the child of this process, one of its ranks, or a worker of theirs, a while after a phase began."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._of = case.kind.split()[0]
        self._timer: threading.Timer | None = None
        self._over = threading.Event()
        self.hit = False

    def on_live(self, live: Live) -> None:
        """Called by the harness at each change of phase."""
        if live.phase == self._case.phase and self._timer is None and self._case.kind != "undisturbed":
            self._timer = threading.Timer(self._case.pause_s, self._strike)
            self._timer.start()

    def end(self) -> None:
        """The candidate is over."""
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _strike(self) -> None:
        while not self.hit and not self._over.is_set():  # a process to end may be about to start
            with contextlib.suppress(psutil.Error):
                found = psutil.Process().children()
                # From the server to its child, from a child to its ranks, and from there to workers.
                levels = ["server", "child", *(["rank"] if self._case.ranks > 1 else []), "worker"]
                for _ in range((self._case.mode == FORK) + levels.index(self._of) - 1):
                    found = [below for process in found for below in process.children()]
                if found:
                    found[self._case.victim % len(found)].kill()
                    self.hit = True
            time.sleep(0.005)


def measure_here(case: Case, setting: Conditions) -> tuple[str, bool, Things]:
    """How the candidate ended, whether the signal reached a process, and ``{}``: the caller sees what is left."""
    killer = Killer(case)
    with servers_of(case.mode, setting) as servers:
        try:
            setting = replace(setting, servers=servers)
            outcome, _ = measure(case.candidate, "candidate", setting, on_live=killer.on_live)
        finally:
            killer.end()
    return ending(outcome), killer.hit, {}


@contextlib.contextmanager
def servers_of(mode: str, setting: Conditions) -> Iterator[ForkServers | None]:
    """Fork servers, where the candidate is to be a fork."""
    if mode == NEW:
        yield None
        return
    with ForkServers() as servers:
        servers.begin(setting.workload.accelerator)
        yield servers


def measure_elsewhere(case: Case, setting: Conditions) -> tuple[str, bool, Things]:
    """As :func:`measure_here`, in a process that is itself ended; and what that process found left before it exited."""
    request = json.dumps(
        {"candidate": to_dict(case.candidate), "workload": to_dict(setting.workload), "mode": case.mode}
    )
    command = [sys.executable, str(Path(__file__).resolve()), request]
    signal_number = KINDS[case.kind]
    assert signal_number is not None
    hit, last = False, ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            last = line.strip()
            if last == case.phase:
                time.sleep(case.pause_s)
                hit = driver.poll() is None
                driver.send_signal(signal_number)
                break
        try:
            # Twice the grace period: it waits itself for what it may have left.
            last = ("\n" + driver.communicate(timeout=2 * GRACE_S)[0].strip()).rsplit("\n", 1)[1] or last
        except subprocess.TimeoutExpired:
            driver.kill()
            return f"still there after {2 * GRACE_S:.0f} s", hit, {"processes": {f"{driver.pid} measurer"}}
    printed = json.loads(last) if last.startswith("{") else {}
    code = driver.returncode
    how = printed.get("ended") or (f"exit {code}" if code >= 0 else signal.Signals(-code).name)
    return how, hit, {thing: set(names) for thing, names in printed.get("left", {}).items()}


def drive(request: str) -> int:
    """The process that measures and is ended: prints each phase as it begins, and at last what it has left."""

    def stop(number: int, _: FrameType | None) -> None:  # as the command does
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Interrupted(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
    asked = json.loads(request)
    workload = from_dict(Workload, asked["workload"])
    paths = [image.path for image in read_index(workload.index_path).images]
    setting = Conditions(workload=workload, paths=paths, cores=frozenset(os.sched_getaffinity(0)), timeout_s=60.0)
    before, code = own_things(), 0
    try:
        with servers_of(asked["mode"], setting) as servers:
            outcome, _ = measure(
                from_dict(Candidate, asked["candidate"]), "candidate", replace(setting, servers=servers),
                on_live=lambda live: print(live.phase, flush=True),
            )  # fmt: skip
        how = ending(outcome)
    except KeyboardInterrupt as interrupted:
        code = exit_code_of(interrupted)
        how = f"exit {code}"
    for number in (signal.SIGINT, signal.SIGTERM):  # one that comes so late has missed
        signal.signal(number, signal.SIG_IGN)
    left = {thing: sorted(names) for thing, names in settled(own_things, before).items()}
    print(json.dumps({"ended": how, "left": left}), flush=True)
    return code


def ending(outcome: Outcome) -> str:
    return outcome.failure.kind if outcome.failure else "measured"


if __name__ == "__main__":
    sys.exit(drive(sys.argv[1]))
