"""The child's program: opens the loader, runs the phases, sends wire lines. Started by the harness, never imported."""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pipetune import registry
from pipetune.accelerator.device_memory import allocated_bytes
from pipetune.augmentation.recipes import devices_recipe
from pipetune.child.bad_images import try_images
from pipetune.child.ceiling import Replay, load_replay
from pipetune.child.memory import tree_bytes
from pipetune.child.ranks import MEASURED, READY, Place, measure_ranks
from pipetune.child.reporter import INSTALL_TORCH, SEND_EVERY_S, Reporter
from pipetune.child.set_up_timer import SetUpTimer
from pipetune.machine.host import usable_cores
from pipetune.measure import failures, machine_speed, wire
from pipetune.measure.fork_servers import modules_for
from pipetune.measure.phases import PhaseProgress, plan_phases, run_phases
from pipetune.processes.parent_death import die_with_parent
from pipetune.records.explanation import TRANSFER
from pipetune.records.sweep import NO_MODEL, Candidate, StepTime, Workload, to_dict

if TYPE_CHECKING:
    from pipetune.accelerator.contract import Accelerator
    from pipetune.loaders.contract import Loader

#: Maximum number of threads of the fixed decode loop. A single one would be moved to a free core by the scheduler.
_SPEED_THREADS = 4
#: Time that the fixed decode loop takes (s); less where the measurement itself is short.
_SPEED_S = 0.25


def main() -> int:
    """The program of a new process."""
    die_with_parent(int(sys.argv[-1]))
    return measure_request()


def measure_request() -> int:
    """Measure what the request on standard input asks for; returns the exit status."""
    fd = int(os.environ.pop(wire.FD_VARIABLE))
    request = wire.decode_request(sys.stdin.buffer.readline())
    timer = SetUpTimer(request.asked_ns)
    if request.workload.ranks > 1 and request.role != wire.CHECK:
        return _reporting(wire.Sender(fd), None, lambda run: _measure_ranks(run, request, fd, timer))
    return _measure_one(wire.Sender(fd), request, None, timer)


def _measure_one(sender: wire.Sender, request: wire.Request, place: Place | None, timer: SetUpTimer) -> int:
    return _reporting(sender, place, lambda run: _measure(run, request, place, timer))


def _reporting(sender: wire.Sender, place: Place | None, work: Callable[[Reporter], int]) -> int:
    """The exit status of some work; whatever a library raises is this candidate's failure record."""
    run = Reporter(sender)
    try:
        return work(run)
    except Exception as error:
        failure = failures.from_exception(error, run.phase, run.install)
        if place is not None:
            failure = failures.of_rank(failure, place.rank)
        sender.send("failure", failure=to_dict(failure))
        return 1


def _measure_ranks(run: Reporter, request: wire.Request, fd: int, timer: SetUpTimer) -> int:
    run.enter("open")
    _find_loaders(run, request)
    import torch  # noqa: F401 - once for all ranks

    timer.end_stage("import_s")
    speed = request.speed_before or _machine_speed(request.workload)
    timer.end_stage()
    status = measure_ranks(
        fd,
        replace(request, speed_before=speed),
        lambda sender, one, place: _measure_one(sender, one, place, timer),
    )
    if status == 0:
        run.sender.send("closed", speed_after=_machine_speed(request.workload))
    return status


def _find_loaders(run: Reporter, request: wire.Request) -> ModuleType:
    """The module that opens loaders, imported when the candidate's side libraries come first."""
    chosen = registry.find_backend(request.candidate.backend)
    run.install = chosen.install
    side = registry.side_folder(chosen)
    if side is not None:
        sys.path.insert(0, side)
    from pipetune.loaders import open_loader as opening  # after the path is set: it finds the right Pillow

    return opening


def _measure(run: Reporter, request: wire.Request, place: Place | None, timer: SetUpTimer) -> int:
    candidate, workload = request.candidate, request.workload
    run.enter("open")
    from pipetune.accelerator.open_accelerator import open_accelerator
    from pipetune.datasets.index import read_index

    images = read_index(workload.index_path)
    opening = _find_loaders(run, request)
    opening.import_for(candidate)
    run.install = INSTALL_TORCH
    if request.role == wire.CHECK:
        try_images(run, candidate, workload, images)
        return 0
    for name in modules_for(workload.accelerator.kind):  # a fork has them; a later stage would count them as its own
        importlib.import_module(name)
    if place is not None:
        from pipetune.datasets.rank_slice import slice_of

        images = slice_of(images, place.rank, place.ranks, workload.seed)
        workload = replace(workload, seed=workload.seed + place.rank)  # of the crops, which differ among ranks
    timer.end_stage("import_s")
    accelerator = open_accelerator(
        workload,
        None if place is None else place.common,
        augment=devices_recipe(candidate, workload.augment),
        classes=len(images.classes),
        end_stage=timer.end_stage,
    )
    replay = load_replay(candidate, workload, images) if request.role == "ceiling" else None
    shape = request.shape or (candidate.batch_size, 3, workload.image_size, workload.image_size)
    if replay is not None:
        shape = tuple(replay.first.images.shape)
    timer.end_stage()
    accelerator.warm_up(shape)
    timer.end_stage(None if workload.accelerator.kind == "emulated" else "warm_up_s")
    device = _device(workload)
    run.sender.send(
        "hello",
        pid=os.getpid(),
        versions=_versions(candidate, workload, device["gpu_name"]),
        set_up=to_dict(timer.set_up),
        **device,
    )
    speed_before = request.speed_before or _machine_speed(workload)
    copy_bytes_per_s = None if replay is None else _prepare(replay, accelerator, request)
    if place is not None:
        place.wait(READY)
    opened_ns = time.monotonic_ns()
    loader: Loader = replay or opening.open_loader(candidate, workload, images, request.stages)
    open_s = (time.monotonic_ns() - opened_ns) / 1e9
    try:
        result = _time_loader(run, loader, accelerator, request, opened_ns, open_s, place)
        result["batch_shape"], result["copy_bytes_per_s"] = shape, copy_bytes_per_s
        if place is not None:
            place.stop()  # so that all are there while their memory is read: they share pages
        result["pss_bytes"] = tree_bytes(_beside(request, place))
        result["gpu_mem_bytes"] = accelerator.memory_bytes()
        result["gpu_allocated_bytes"] = allocated_bytes(workload.accelerator)
        # Sent before closing, so that the measurement is kept if the loader crashes while it ends.
        run.sender.send("result", speed_before=speed_before, **result)
        if place is not None:
            place.wait(MEASURED)
        run.enter("close")
    finally:
        loader.close()
    if place is None:
        run.sender.send("closed", speed_after=_machine_speed(workload))
    return 0


def _prepare(replay: Replay, accelerator: Accelerator, request: wire.Request) -> float | None:
    """Put the batches where each step finds them; the rate at which they are copied to the device (bytes/s)."""
    rate = accelerator.copy_rate(replay.first)
    if TRANSFER not in request.stages:
        replay.place(accelerator)
    elif request.workload.accelerator.kind == "cuda":
        replay.lock_pages()
    return rate


def _beside(request: wire.Request, place: Place | None) -> tuple[int, ...]:
    """Processes that hold memory for this one; for one of several ranks they do so once."""
    if place is None:
        return request.servers
    return (*request.servers, place.leader) if place.rank == 0 else ()


def _time_loader(
    run: Reporter, loader: Loader, accelerator: Accelerator, request: wire.Request, opened_ns: int, open_s: float,
    place: Place | None,
) -> dict[str, Any]:  # fmt: skip
    from pipetune.child.time_steps import time_steps

    candidate, workload = request.candidate, request.workload
    run.enter("first_batch")
    progress = PhaseProgress()
    phases = plan_phases(candidate.num_workers, candidate.prefetch_depth, workload.seconds, workload.warmup_limit_s)
    steps = time_steps(loader, accelerator)
    unsent: list[StepTime] = []
    sent_ns = time.monotonic_ns()
    for phase, step in run_phases(steps, phases, progress, request.question, place):
        if run.phase == "first_batch":
            first_s = (step.t_start_ns - opened_ns) / 1e9 + step.data_wait_s
            run.sender.send("first_batch", open_s=open_s, time_to_first_batch_s=first_s)
        if phase != run.phase:
            _send_steps(run, unsent)
            run.enter(phase)
        unsent.append(step)
        if place is not None:
            place.step()
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
    if workload.accelerator.kind != "emulated" and workload.model != NO_MODEL:
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
