"""What does host 1 take for having many hosts measure at the same time?

Promise: with 64 hosts, host 1 takes less than 1 % of a core for the others, and a measurement 0.2 s more.

All hosts are on this machine, over the loopback: host 1 in a process of its own, the others as threads of four more.
What they measure is replayed: nothing is loaded for six seconds, and the rate is known. So all that host 1's process
takes is for asking, waiting and joining, the thread that keeps the store and its beats included; the first task, which
sends the index of 20,000 images, counts apart. The promise holds where the median CPU time of the others, by the wall
time, is below 1 % of a core, and the median of what a task takes longer than six seconds is at most 0.2 s.

``--quick`` takes about a minute, the full run about 4.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

CORES, LATER_S = 0.01, 0.2
HOSTS, QUICK_HOSTS = (2, 16, 64), (2, 64)
TASKS, QUICK_TASKS = 10, 4
#: As long as a candidate takes with the usual ``--seconds 4``.
MEASURED_S, IMAGES, PROCESSES = 6.0, 20_000, 4


def main(options: Namespace) -> bench.Result:
    rows, cases = [], []
    for hosts in QUICK_HOSTS if options.quick else HOSTS:
        found = host_1_beside(hosts, QUICK_TASKS if options.quick else TASKS)
        cases.append({"hosts": hosts, **found})
        rows.append([
            str(hosts), f"{100 * median(found['cores']):.2f} %", f"{100 * max(found['cores']):.2f} %",
            f"{median(found['later_s']):.3f} s", f"{max(found['later_s']):.3f} s",
            f"{found['first_cpu_s']:.2f} s",
        ])  # fmt: skip
    print(bench.table(
        ["hosts", "of a core: median", "most", "longer: median", "most", "CPU time of the first task"], rows
    ))  # fmt: skip
    last = cases[-1]
    holds = median(last["cores"]) < CORES and median(last["later_s"]) <= LATER_S
    return bench.Result(holds, {"cases": cases})


def host_1_beside(hosts: int, tasks: int) -> dict[str, Any]:
    """Host 1's CPU time of each task as a share of its wall time, and by how much that is longer (s)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shares = [list(range(1, hosts))[number::PROCESSES] for number in range(PROCESSES)]
    others = [
        subprocess.Popen(
            [sys.executable, __file__, "--part", json.dumps({"hosts": hosts, "port": port, "mine": mine})],
            env=bench.environment(), stderr=subprocess.DEVNULL,
        )
        for mine in shares if mine
    ]  # fmt: skip
    try:
        found: dict[str, Any] = bench.last_line_of(
            [sys.executable, __file__, "--part", json.dumps({"hosts": hosts, "port": port, "tasks": tasks})]
        )
        for process in others:
            process.wait(timeout=60)
    finally:
        for process in others:
            process.kill()
            process.wait()
    return found


def replayed(candidate: Any, role: str, conditions: Any, **known: Any) -> Any:
    """A measurement that loads nothing."""
    from pipetune.measure.recording import Recording
    from pipetune.records.sweep import StepTime
    from tests import fakes

    conditions.on_ready()
    began_ns = time.monotonic_ns()
    time.sleep(MEASURED_S)
    steps = [
        StepTime(t_start_ns=at, data_wait_s=0, h2d_s=None, compute_s=0, idle_s=0, t_end_ns=at, samples=1)
        for at in (began_ns + 10**9, time.monotonic_ns())
    ]
    return fakes.outcome(role=role), Recording(warmup=steps[:1], timed=steps[1:])


def serve_some(asked: dict[str, Any]) -> None:
    """Some of the other hosts, each a thread."""
    from pipetune.hosts.agent import serve
    from pipetune.hosts.place import HostPlace
    from pipetune.hosts.store import import_torch
    from pipetune.measure.fork_servers import ForkServers

    import_torch()  # once, and not by all threads at the same time

    class NoServers(ForkServers):
        """Nothing is loaded, so no process is needed."""

        def begin(self, accelerator: Any) -> None:
            pass

    places = [HostPlace(host=host, hosts=asked["hosts"], address="127.0.0.1", port=asked["port"])
              for host in asked["mine"]]  # fmt: skip
    options = {"measure": replayed, "servers_of": NoServers}
    threads = [threading.Thread(target=serve, args=(place, lambda line: None), kwargs=options) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def lead(asked: dict[str, Any]) -> dict[str, Any]:
    """Host 1."""
    from pipetune.accelerator.named import emulated_spec
    from pipetune.datasets.index import ImageFile, ImageSet, write_index
    from pipetune.hosts.coordinator import Coordinator
    from pipetune.hosts.place import HostPlace
    from pipetune.hosts.start import about_this_host
    from pipetune.measure.conditions import Conditions
    from pipetune.records.sweep import Workload
    from tests import fakes

    place = HostPlace(host=0, hosts=asked["hosts"], address="127.0.0.1", port=asked["port"])
    cpu_s, wall_s = [], []
    with tempfile.TemporaryDirectory(prefix="pipetune-many-") as folder:
        file = Path(folder, "image.jpg")
        file.write_bytes(b"x")
        images = tuple(
            ImageFile(path=str(file), label=0, width=8, height=8, size_bytes=1, orientation=1, format="JPEG",
                      progressive=False) for _ in range(IMAGES)
        )  # fmt: skip
        index = str(Path(folder, "index.json"))
        write_index(index, ImageSet(name="many", root=folder, classes=("a",), images=images, found_images=IMAGES))
        workload = Workload(
            dataset=folder, index_path=index, accelerator=emulated_spec("100"), model="resnet50", image_size=224,
            precision="emulated", seconds=4.0, warmup_limit_s=8.0, cache="warm", seed=0,
        )  # fmt: skip
        conditions = Conditions(workload=workload, paths=(), cores=frozenset({0}))
        with Coordinator(place, about_this_host(), measure=replayed) as hosts:
            for _ in range(asked["tasks"] + 1):
                began_cpu, began = time.process_time(), time.monotonic()
                outcome, _ = hosts.measure(fakes.outcome().candidate, "candidate", conditions)
                cpu_s.append(time.process_time() - began_cpu)
                wall_s.append(time.monotonic() - began)
                assert outcome.measurement is not None
                assert len(outcome.measurement.hosts) == asked["hosts"]
    return {
        "cores": [cpu / wall for cpu, wall in zip(cpu_s[1:], wall_s[1:], strict=True)],
        "later_s": [wall - MEASURED_S for wall in wall_s[1:]], "first_cpu_s": cpu_s[0],
    }  # fmt: skip


if __name__ == "__main__":
    if "--part" in sys.argv:
        part = json.loads(sys.argv[-1])
        if "mine" in part:
            serve_some(part)
        else:
            print(json.dumps(lead(part)))
    else:
        bench.run(main, __file__, __doc__)
