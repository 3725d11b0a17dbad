"""Candidates that are forks of one server: it is killed, or they leave behind whatever they can. The next is as before.

What is the same for candidates in new processes is tried in both ways.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.accelerator.named import emulated_spec
from pipetune.datasets.index import write_index
from pipetune.machine.host import describe_host
from pipetune.measure.fork_servers import ForkServers
from pipetune.measure.harness import Conditions, Live, measure
from pipetune.records.sweep import Candidate, Outcome
from pipetune.usercode.make_loader import pack
from tests.forks import never, running
from tests.integration import commands
from tests.photo_set import candidate, enlarge, scan, workload

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="the children measure torch loaders")

#: The loader of a candidate that does what the file ``act`` says, and writes down what it has found before.
LOADER = """
import json, multiprocessing, os, resource, signal, sys, threading, time
from pathlib import Path

FOLDER = Path(__file__).parent

def state():
    mask = os.umask(0)
    os.umask(mask)
    return {
        "environment": sorted(pair for pair in os.environ.items() if not pair[0].startswith(("PIPETUNE_", "PYTEST_"))),
        "signals": [str(signal.getsignal(number)) for number in (2, 15, 17, 12)],
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "folder": os.getcwd(),
        "limits": [resource.getrlimit(number) for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
        "path": [place for place in sys.path if place],
        "umask": mask,
        "cores": sorted(os.sched_getaffinity(0)),
        "priority": os.nice(0),
        "python threads": threading.active_count(),
        "changed": getattr(json, "changed", False),
        "arguments": len(sys.argv),
        "recursion": sys.getrecursionlimit(),
        "group": os.getpgid(0) == os.getsid(0) == os.getpid(),
        "open": len(os.listdir("/proc/self/fd")),
    }

def make_loader(batch_size, num_workers):
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    found = {**state(), "torch threads": torch.get_num_threads(), "dtype": str(torch.get_default_dtype())}
    drawn = torch.rand(()).item()
    waits = {}  # seconds before a batch, by its number, or before the end of the loader ("close")
    exec((FOLDER / "act").read_text(), {"seen": found, "waits": waits})
    (FOLDER / "seen").write_text(json.dumps([found, drawn]))
    data = TensorDataset(torch.zeros(64, 3, 16, 16), torch.zeros(64, dtype=torch.long))

    class Waiting(DataLoader):
        def __iter__(self):
            for number, batch in enumerate(super().__iter__()):
                time.sleep(waits.get(number, 0))
                yield batch

        def close(self):
            time.sleep(waits.get("close", 0))

    return Waiting(data, batch_size=batch_size, num_workers=num_workers)
"""


@dataclass(slots=True)
class Bench:
    """Measures in forks, or in new processes beside a fork server, and kills that server."""

    conditions: Conditions
    folder: Path

    @property
    def server(self) -> int:
        assert self.conditions.servers is not None
        (pid,) = self.conditions.servers.pids
        return pid

    def measure(
        self, chosen: Candidate, on_live: Callable[[Live], None] = lambda live: None, **changes: Any
    ) -> Outcome:
        conditions = replace(self.conditions, **changes)
        outcome, _ = measure(chosen, "candidate", conditions, on_live=on_live)
        if outcome.measurement is not None:
            assert outcome.forked is not conditions.new_process
        return outcome

    def acts(
        self, lines: str, on_live: Callable[[Live], None] = lambda live: None, *, workers: int = 0,
        seconds: float = 0.3, warmup_limit_s: float = 0.5, **changes: Any,
    ) -> Outcome:  # fmt: skip
        """A candidate whose loader does this when it is made."""
        (self.folder / "act").write_text(lines)
        own = replace(
            self.conditions.workload, loader_path=str(self.folder / "loader.pkl"), seconds=seconds,
            warmup_limit_s=warmup_limit_s,
        )  # fmt: skip
        return self.measure(candidate("own", workers), on_live, workload=own, **changes)

    def found(self, **changes: Any) -> tuple[Outcome, dict[str, Any], float]:
        """A candidate that changes nothing; what it found, and a random number that it drew."""
        outcome = self.acts("", **changes)
        assert outcome.measurement is not None, outcome.failure
        state, drawn = json.loads((self.folder / "seen").read_text())
        return outcome, state, drawn


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("forks")
    images = scan(enlarge(folder / "photos", copies=5))
    write_index(str(folder / "index.json"), images)
    (folder / "acting_loader.py").write_text(LOADER)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        import acting_loader

        (folder / "loader.pkl").write_bytes(pack(acting_loader.make_loader))
    asked = workload(
        index_path=str(folder / "index.json"), accelerator=emulated_spec("400"), image_size=32, seconds=0.3,
        warmup_limit_s=0.5,
    )  # fmt: skip
    with ForkServers() as servers:
        servers.begin(asked.accelerator)
        conditions = Conditions(
            workload=asked, paths=[image.path for image in images.images], cores=frozenset(os.sched_getaffinity(0)),
            servers=servers,
        )  # fmt: skip
        yield Bench(conditions, folder)
    assert [process for process in psutil.Process().children(recursive=True) if running(process.pid)] == []


@pytest.fixture(autouse=True)
def nobody_is_left_below_the_server(bench: Bench) -> Iterator[None]:
    yield
    children = psutil.Process().children(recursive=True)
    assert [process for process in children if running(process.pid) and process.pid != bench.server] == []


#: What the measurement of a candidate comes to whose fork server is killed in a phase.
PHASES = {
    "page cache": None, "open": "killed", "first_batch": "killed", "warmup": "killed", "timed": "killed", "close": None,
}  # fmt: skip

#: What makes a phase last until the server is killed, however late a busy machine tells of it. The accelerator may
#: tell of its first step, with which the warm-up begins, as late as when it has two more.
LONG = {
    "open": "import time; time.sleep(60)", "first_batch": "waits[0] = 60", "warmup": "waits[3] = 60",
    "close": "waits['close'] = 60",
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_a_server_that_is_killed_takes_one_candidate_at_most(bench: Bench, phase: str) -> None:
    bench.conditions.servers.settle(never)  # type: ignore[union-attr]
    killed = bench.server
    assert running(killed)

    def kill(live: Live) -> None:
        if live.phase == phase and running(killed):
            os.kill(killed, signal.SIGKILL)
            commands.wait_until(lambda: not running(killed))

    long = {"timed": {"seconds": 20.0}, "warmup": {"warmup_limit_s": 60.0}}.get(phase, {})
    outcome = bench.acts(LONG.get(phase, ""), kill, workers=1, **long)
    if PHASES[phase] is None:
        assert outcome.measurement is not None, outcome.failure
        assert any("did not end cleanly" in text for text in outcome.measurement.warnings) == (phase == "close")
    else:
        assert outcome.failure is not None
        assert (outcome.failure.kind, outcome.failure.phase) == (PHASES[phase], phase)
        assert "SIGKILL" in outcome.failure.message  # as of a new process that is killed
    after = bench.measure(candidate("pillow", 1))
    assert after.measurement is not None
    assert bench.server != killed


BOTH = [
    pytest.param({"new_process": False}, id="fork"),
    pytest.param({"new_process": True}, id="new process", marks=pytest.mark.slow),
]

CHANGES = """
import json, multiprocessing, os, resource, signal, sys, torch
os.environ["CHANGED"] = "1"
del os.environ["PATH"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
multiprocessing.set_start_method("spawn", force=True)
os.chdir("/")
os.umask(0)
os.nice(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path.append("/changed")
sys.argv.append("changed")
sys.setrecursionlimit(12345)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
json.changed = True
torch.set_num_threads(1 + torch.get_num_threads())
torch.set_default_dtype(torch.float64)
"""

#: Left behind: threads that do not end, of which Python would wait for one; processes, one of which ignores signals;
#: a worker pool that nobody closes; files.
LEAVES = """
import multiprocessing, os, signal, threading, time
for daemon in (True, False):
    threading.Thread(target=time.sleep, args=(1000,), daemon=daemon).start()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    time.sleep(1000)
    os._exit(0)
process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
process.start()
import builtins
builtins.kept = [multiprocessing.get_context("fork").Pool(2), process, *(open("/dev/null") for _ in range(100))]
"""


def pss_bytes(outcome: Outcome) -> int:
    assert outcome.measurement is not None
    assert outcome.measurement.pss_bytes is not None
    return outcome.measurement.pss_bytes


@pytest.mark.parametrize("mode", BOTH)
def test_the_next_candidate_finds_what_the_first_one_found(bench: Bench, mode: dict[str, bool]) -> None:
    first, before, drawn = bench.found(**mode)
    assert before["group"]

    changed = bench.acts(CHANGES, **mode)
    assert changed.measurement is not None or changed.failure is not None
    left = bench.acts(LEAVES, **mode)
    assert left.measurement is not None, left.failure
    below = [process for process in psutil.Process().children(recursive=True) if running(process.pid)]
    assert [process.pid for process in below] == [bench.server]

    size = min(2 << 30, (describe_host().memory_available_bytes or 2 << 30) // 4)  # a container may have less
    leak = bench.acts(f"import builtins; builtins.leak = b'x' * {size}", **mode)
    assert leak.measurement is not None, leak.failure

    second, after, drawn_after = bench.found(**mode)
    assert after == before
    assert drawn_after != drawn  # torch's random numbers, as in new processes
    assert pss_bytes(leak) > size
    assert pss_bytes(second) < pss_bytes(first) + size / 4


@pytest.mark.slow
def test_a_candidate_finds_the_same_in_a_fork_and_in_a_new_process(bench: Bench) -> None:
    forked, in_fork, _ = bench.found(new_process=False)
    fresh, in_new, _ = bench.found(new_process=True)
    alone = bench.acts("", new_process=True, servers=None)
    assert in_fork == in_new
    sizes = [pss_bytes(outcome) for outcome in (forked, fresh, alone)]
    # Another process that uses torch at this moment takes its part of the libraries, so no closer.
    assert max(sizes) < 2 * min(sizes), sizes


@pytest.mark.slow
def test_a_sweep_whose_server_is_killed_goes_on_and_says_no_more_than_of_a_child(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = commands.start(commands.sweep_command(photos, out, "--workers", "0,1,2", "--grid", "--json", "-"))
    commands.wait_until(lambda: commands.outcomes_in(out))
    below = commands.children(process.pid)
    started = psutil.Process(process.pid).children()
    (server,) = (child for child in started if "fork_server" in " ".join(child.cmdline()))
    server.kill()
    printed, errors = process.communicate(timeout=290)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert "fork" not in errors
    result = json.loads(printed)
    failures = [row["failure"]["kind"] for row in result["outcomes"] if "failure" in row]
    assert failures in ([], ["killed"])
    assert errors.count(": failed in phase ") == len(failures)
    forked = {row["role"]: row["forked"] for row in commands.outcomes_in(out) if row["measurement"]}
    assert forked == {"ceiling": True, "baseline": False, "candidate": True}
    commands.wait_until(lambda: not commands.alive(below))
