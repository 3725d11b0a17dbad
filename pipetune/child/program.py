"""CHILD: opens the loader, runs the phases, sends wire lines. Started by the harness; no other module imports it."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from pipetune import registry
from pipetune.child.bad_images import try_images
from pipetune.child.ceiling import load_replay
from pipetune.child.reporter import INSTALL_TORCH, SEND_EVERY_S, Reporter
from pipetune.machine.host import usable_cores
from pipetune.measure import failures, machine_speed, wire
from pipetune.measure.phases import PhaseProgress, Question, plan_phases, run_phases
from pipetune.processes.parent_death import die_with_parent
from pipetune.records.sweep import Candidate, StepTime, Workload, to_dict

if TYPE_CHECKING:
    from pipetune.accelerator.contract import Accelerator
    from pipetune.loaders.contract import Loader

#: Greatest number of cores that the fixed decode loop uses. With one, the scheduler would move it to a free core.
_SPEED_THREADS = 4
#: Time that it takes (s); less where the measurement itself is short.
_SPEED_S = 0.25


def main() -> int:
    """Measure what the request on standard input asks for; returns the exit status."""
    die_with_parent(int(sys.argv[-1]))
    sender = wire.Sender(int(os.environ.pop(wire.FD_VARIABLE)))
    candidate, workload, role, question = wire.decode_request(sys.stdin.buffer.readline())
    run = Reporter(sender)
    try:
        _measure(run, candidate, workload, role, question)
    except Exception as error:  # whatever a library raises is this candidate's failure record
        failure = failures.from_exception(error, run.phase, run.install)
        sender.send("failure", failure=to_dict(failure))
        return 1
    return 0


def _measure(run: Reporter, candidate: Candidate, workload: Workload, role: str, question: Question | None) -> None:
    run.enter("open")
    from pipetune.accelerator.open_accelerator import open_accelerator
    from pipetune.datasets.index import read_index

    images = read_index(workload.index_path)
    chosen = registry.find_backend(candidate.backend)
    run.install = chosen.install
    side = registry.side_folder(chosen)
    if side is not None:
        sys.path.insert(0, side)
    from pipetune.loaders import open_loader as opening  # after the path is set: it finds the right Pillow

    opening.import_for(candidate)
    run.install = INSTALL_TORCH
    if role == wire.CHECK:
        try_images(run, candidate, workload, images)
        return
    accelerator = open_accelerator(workload)
    accelerator.warm_up(candidate.batch_size, workload.image_size)
    device = _device(workload)
    run.sender.send("hello", pid=os.getpid(), versions=_versions(candidate, workload, device["gpu_name"]), **device)
    speed_before = _machine_speed(workload)
    replay = load_replay(candidate, workload, images) if role == "ceiling" else None
    opened_ns = time.monotonic_ns()
    loader: Loader = replay or opening.open_loader(candidate, workload, images)
    open_s = (time.monotonic_ns() - opened_ns) / 1e9
    try:
        result = _time_loader(run, loader, accelerator, candidate, workload, opened_ns, open_s, question)
        result["pss_bytes"] = _tree_pss()
        result["gpu_mem_bytes"] = accelerator.memory_bytes()
        # Sent before closing, so that the measurement of a loader that crashes while it ends is kept.
        run.sender.send("result", speed_before=speed_before, **result)
        run.enter("close")
    finally:
        loader.close()
    run.sender.send("closed", speed_after=_machine_speed(workload))


def _time_loader(
    run: Reporter, loader: Loader, accelerator: Accelerator, candidate: Candidate, workload: Workload, opened_ns: int,
    open_s: float, question: Question | None,
) -> dict[str, Any]:  # fmt: skip
    from pipetune.child.time_steps import time_steps

    run.enter("first_batch")
    progress = PhaseProgress()
    phases = plan_phases(candidate.num_workers, candidate.prefetch_depth, workload.seconds, workload.warmup_limit_s)
    steps = time_steps(loader, accelerator)
    unsent: list[StepTime] = []
    sent_ns = time.monotonic_ns()
    for phase, step in run_phases(steps, phases, progress, question):
        if run.phase == "first_batch":
            first_s = (step.t_start_ns - opened_ns) / 1e9 + step.data_wait_s
            run.sender.send("first_batch", open_s=open_s, time_to_first_batch_s=first_s)
        if phase != run.phase:
            _send_steps(run, unsent)
            run.enter(phase)
        unsent.append(step)
        if time.monotonic_ns() - sent_ns > SEND_EVERY_S * 1e9:
            _send_steps(run, unsent)
            sent_ns = time.monotonic_ns()
    _send_steps(run, unsent)
    return {
        "warmup_batches": progress.warmup_batches,
        "steady": progress.steady,
        "window_batches": progress.window_batches,
        "ended_early": progress.answered,
    }


def _send_steps(run: Reporter, unsent: list[StepTime]) -> None:
    if unsent:
        run.sender.send("steps", phase=run.phase, rows=wire.steps_to_rows(unsent))
        unsent.clear()


def _machine_speed(workload: Workload) -> machine_speed.Speed:
    threads = max(1, min(_SPEED_THREADS, math.ceil(usable_cores())))
    return machine_speed.read_speed(min(_SPEED_S, workload.seconds / 8), threads)


def _tree_pss() -> int | None:
    """Memory of this process and its descendants, each shared page divided by the number of its users (bytes)."""
    import psutil

    me = psutil.Process()
    sizes = []
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error, AttributeError):  # it has ended; this kernel does not count shared pages
            sizes.append(process.memory_full_info().pss)
    return sum(sizes) if sizes else None


def _device(workload: Workload) -> dict[str, Any]:
    """What the parent needs to find the same GPU through NVML, which numbers devices in another order."""
    if workload.accelerator.kind != "cuda":
        return {"gpu_uuid": None, "gpu_name": None}
    import torch

    properties = torch.cuda.get_device_properties(workload.accelerator.device_index)
    return {"gpu_uuid": str(properties.uuid), "gpu_name": properties.name}


def _versions(candidate: Candidate, workload: Workload, gpu_name: str | None) -> dict[str, str]:
    import torch

    backend = registry.installed_version(registry.find_backend(candidate.backend))
    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "backend": backend or "unknown"}
    if "PIL" in sys.modules:
        pillow = sys.modules["PIL"]
        versions["PIL"] = f"{pillow.__version__} from {os.path.dirname(str(pillow.__file__))}"
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    if workload.accelerator.kind != "emulated":
        from pipetune.accelerator.train_step import usable_precision

        versions["precision"] = usable_precision(workload.precision, torch.device(workload.accelerator.kind))
    if gpu_name is not None:
        versions["gpu"] = gpu_name
    return versions


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The loader is closed and everything is sent; unloading torch and CUDA would only cost time.
    os._exit(status)
