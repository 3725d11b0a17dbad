"""``pipetune batch-size`` as a program: predict, measure each batch size in a fresh process, conclude."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipetune.accelerator.compiler import require_compiler
from pipetune.accelerator.cuda_devices import count_cuda_devices
from pipetune.accelerator.model_names import require_model
from pipetune.accelerator.parse_device import parse_device
from pipetune.datasets.index import ImageSet, write_index
from pipetune.datasets.open_dataset import open_dataset
from pipetune.errors import PipetuneError, UsageError
from pipetune.machine.host import usable_cores
from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure.conditions import Conditions
from pipetune.measure.fork_server import PACKAGE_FOLDER, RUN_MODULE
from pipetune.measure.harness import measure
from pipetune.processes.temporary_folder import temporary_folder
from pipetune.records.batch_size import BatchPoint, BatchSizes
from pipetune.records.sweep import AcceleratorSpec, Candidate, Workload
from pipetune.registry import BACKENDS, installed_version
from pipetune.scaling.batch_search import BatchSearch, Measured
from pipetune.scaling.batch_size import Line, knee_of, largest_of, largest_on, line_through, memory_line

#: What stopped a search that has kept what it had, and has not come back.
KILLED = "it was killed"
#: Batch sizes whose memory fake tensors predict.
_FAKE = (8, 32)
_LIMIT_S = 300.0
#: Images that batches are made of: they may repeat.
_MOST_IMAGES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The defaults are those of the command and of ``pipetune.batch_size``."""

    model: str = "resnet50"
    image_size: int = 224
    precision: str = "auto"
    device: str = "auto"
    memory: float = 0.92
    """Share of the device's free memory that a step may take (0..1]."""
    dataset: str = "synthetic:caltech256?n=64"
    seconds: float = 1.5
    seed: int = 0
    checkpointing: bool = False
    """Batch sizes with activation checkpointing are looked for, too."""
    compile: bool = False
    """``torch.compile`` compiles the model."""


def find_batch_size(
    chosen: BatchOptions, on_point: Callable[[BatchPoint], None], on_next: Callable[[int], None],
    on_stop: Callable[[KeyboardInterrupt], None], keep: Callable[[BatchSizes], None] = lambda found: None,
) -> BatchSizes:  # fmt: skip
    """Find the largest batch that fits and the smallest that is as fast.

    Args:
        on_point: is told what was measured.
        on_next: is told what will be.
        on_stop: is told that it was asked to stop; what is known then is returned.
        keep: is given what is known after each batch size, and the result.

    Raises:
        UsageError: an option that cannot be used, or a device without a memory of its own.
        PipetuneError: the memory could not be predicted, or nothing could be measured.
        KeyboardInterrupt: asked to stop before anything was measured.
    """
    spec = _check(chosen)
    images = open_dataset(
        chosen.dataset, seed=chosen.seed, limit_images=_MOST_IMAGES, limit_bytes=1 << 30,
        workers=round(usable_cores()) or 1,
    )  # fmt: skip
    free, total, predicted = _predict(chosen, spec)
    limit = chosen.memory * free
    guess = largest_on(predicted, limit)
    if guess < 1 and not chosen.checkpointing:
        raise _too_large(chosen, predicted, limit)

    def conclude(stopped: str | None) -> BatchSizes:
        plain = [point for point in search.points if not point.checkpointing]
        line = memory_line(plain)
        return BatchSizes(
            model=chosen.model,
            image_size=chosen.image_size,
            device=spec.name,
            precision=next((one.precision for one in search.found if one.precision), chosen.precision),
            compiled=chosen.compile,
            total_bytes=total,
            limit_bytes=round(limit),
            predicted_largest=guess,
            largest=largest_of(plain, limit),
            knee=knee_of(plain, limit),
            points=search.points,
            fixed_bytes=None if line is None else line[0],
            bytes_per_sample=None if line is None else line[1],
            checkpointed_largest=largest_of([point for point in search.points if point.checkpointing], limit),
            stopped=stopped,
            notes=search.notes,
        )

    def measured(point: BatchPoint) -> None:
        keep(conclude(KILLED))
        on_point(point)

    search = BatchSearch(on_point=measured, on_next=on_next, on_stop=on_stop)
    with temporary_folder("batch") as folder, HeldGpus() as gpus:
        conditions = _conditions(chosen, spec, images, folder, round(limit), gpus)
        if guess:
            search.run(lambda size: _measured(size, conditions, raw=images.is_raw), predicted, limit)
        if chosen.checkpointing and search.stopped is None and not search.failed:
            checkpointed = _predict_checkpointed(chosen, spec, search)
            if checkpointed is not None and largest_on(checkpointed, limit) >= 1:
                conditions = replace(conditions, workload=replace(conditions.workload, checkpointing=True))
                search.run(lambda size: _measured(size, conditions, raw=images.is_raw), checkpointed, limit,
                           since=len(search.found))  # fmt: skip
            elif not search.points:
                raise _too_large(chosen, checkpointed or predicted, limit)
    if search.failed is not None and largest_of(search.points, limit) is None:
        raise PipetuneError(
            f"no batch size could be measured: {search.failed}", hint="pipetune doctor shows what is wrong"
        )
    found = conclude("interrupted" if search.stopped is not None else search.failed)
    keep(found)
    return found


def measure_batch_size(chosen: BatchOptions, size: int, limit_bytes: int) -> BatchPoint:
    """One batch size alone, in the way of :func:`find_batch_size`; raises as it does.

    Args:
        limit_bytes: memory that torch may reserve.
    """
    spec = _check(chosen)
    images = open_dataset(chosen.dataset, seed=chosen.seed, limit_images=_MOST_IMAGES, limit_bytes=1 << 30, workers=1)
    with temporary_folder("batch") as folder:
        return _measured(size, _conditions(chosen, spec, images, folder, limit_bytes), raw=images.is_raw).point


def _too_large(chosen: BatchOptions, predicted: Line, limit: float) -> PipetuneError:
    """Not even one image fits."""
    return PipetuneError(
        f"{chosen.model} with {chosen.image_size} px needs {(predicted[0] + predicted[1]) / 2**30:.1f} GiB for one "
        f"image, {limit / 2**30:.1f} GiB may be used", hint="smaller crops, --precision bf16, or --checkpointing"
    )  # fmt: skip


def _check(chosen: BatchOptions) -> AcceleratorSpec:
    """The device.

    Raises:
        UsageError: a value out of range, an unknown model, or a device that is no CUDA device.
        PipetuneError: the model cannot be compiled here.
    """
    require_model(chosen.model)
    if not 0.05 <= chosen.memory <= 1:
        raise UsageError(f"--memory {chosen.memory:g} is no share from 0.05 to 1", hint="write --memory 0.92")
    if not 8 <= chosen.image_size <= 4096:
        raise UsageError(f"--image-size {chosen.image_size} is out of range", hint="write --image-size 224")
    if chosen.precision not in ("auto", "fp32", "amp", "bf16"):
        raise UsageError(f"--precision {chosen.precision} is unknown", hint="choose auto, fp32, amp or bf16")
    if not 0.2 <= chosen.seconds <= 60:
        raise UsageError(f"--seconds {chosen.seconds:g} is out of range", hint="write --seconds 1.5")
    devices, remark = count_cuda_devices(chosen.device.startswith("cuda"))
    spec = parse_device(chosen.device, devices, remark)
    if chosen.compile and spec.kind == "cuda":
        require_compiler(spec.kind, os.environ)
    if spec.kind != "cuda":
        raise UsageError(
            f"--device {chosen.device}: {spec.name} has no memory of its own that a batch could fill",
            hint="run it on the machine with the GPU: --device cuda:0",
        )
    return spec


def _predict(
    chosen: BatchOptions, spec: AcceleratorSpec, *, checkpointing: bool = False
) -> tuple[int, int, Line]:  # fmt: skip
    """Free and whole memory of the device (bytes), and the memory of a step over the batch size, by fake tensors."""
    request = {"model": chosen.model, "precision": chosen.precision, "image_size": chosen.image_size,
               "batches": _FAKE, "device": spec.device_index or 0, "checkpointing": checkpointing}  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", RUN_MODULE, json.dumps(request), str(os.getpid()),
             "pipetune.child.fake_memory", PACKAGE_FOLDER], stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PipetuneError(f"the memory was not predicted within {_LIMIT_S:.0f} s",
                            hint="does the GPU answer? nvidia-smi says") from None  # fmt: skip
    lines = done.stdout.decode(errors="replace").splitlines()
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": _last(done.stderr), "hint": None}
    if "error" in found:
        raise (UsageError if found.get("usage") else PipetuneError)(
            f"the memory of {chosen.model} cannot be predicted: {found['error']}", hint=found["hint"]
        )
    peaks = [float(peak) for peak in found["peaks"]]
    return found["memory"]["free"], found["memory"]["total"], line_through(list(zip(_FAKE, peaks, strict=True)))


def _predict_checkpointed(chosen: BatchOptions, spec: AcceleratorSpec, search: BatchSearch) -> Line | None:
    """The memory over the batch size with checkpointing; ``None``: it was not predicted, and what was measured stays.

    Raises:
        KeyboardInterrupt, PipetuneError: and nothing was measured yet.
    """
    try:
        return _predict(chosen, spec, checkpointing=True)[2]
    except KeyboardInterrupt as asked:
        if not search.points:
            raise
        search.stop(asked)
    except PipetuneError as error:
        if not search.points:
            raise
        search.remark(f"not measured with --checkpointing: {error.message}")
    return None


def _last(stderr: bytes) -> str:
    return (stderr.decode(errors="replace").strip().splitlines() or ["the process said nothing"])[-1]


def _conditions(
    chosen: BatchOptions,
    spec: AcceleratorSpec,
    images: ImageSet,
    folder: Path,
    limit_bytes: int,
    gpus: HeldGpus | None = None,
) -> Conditions:
    index = folder / "index.json"
    write_index(str(index), images)
    workload = Workload(
        dataset=images.name, index_path=str(index), accelerator=spec, model=chosen.model,
        image_size=chosen.image_size, precision=chosen.precision, seconds=chosen.seconds,
        warmup_limit_s=max(2.0, 2 * chosen.seconds), cache="warm", seed=chosen.seed,
        gpu_memory_limit_bytes=limit_bytes, compiled=chosen.compile,
    )  # fmt: skip
    return Conditions(workload=workload, paths=images.files, cores=frozenset(os.sched_getaffinity(0)), gpus=gpus)


def _measured(size: int, conditions: Conditions, *, raw: bool) -> Measured:
    """One batch size: its rate on batches that are there already, and the memory that torch reserved."""
    # The few images that are replayed come from the decoder that is likely to be the fastest. No workers: the timed
    # phase is cut into windows of as many steps as there are workers.
    usable = [one for one in BACKENDS.values() if one.releases_gil and installed_version(one) is not None
              and (one.reads_raw or not raw)]  # fmt: skip
    candidate = Candidate(
        backend=min(usable, key=lambda one: one.usual_cost).name, num_workers=0, prefetch_depth=0, batch_size=size,
        transfer="uint8", reuse_buffers=True,
    )  # fmt: skip
    checkpointing = conditions.workload.checkpointing
    outcome, recording = measure(candidate, "ceiling", conditions)
    stopped = recording.stopped if isinstance(recording.stopped, KeyboardInterrupt) else None
    if outcome.measurement is None:
        assert outcome.failure is not None
        failure = outcome.failure
        message = failure.message + (f"; {failure.hint}" if failure.hint else "")
        point = BatchPoint(batch_size=size, samples_per_s=None, peak_bytes=None, failure=message,
                           out_of_memory=failure.kind == "out_of_gpu_memory", checkpointing=checkpointing)  # fmt: skip
        return Measured(point=point, stopped=stopped)
    result = recording.result
    point = BatchPoint(
        batch_size=size, samples_per_s=outcome.measurement.samples_per_s, peak_bytes=result.get("gpu_mem_bytes"),
        allocated_bytes=result.get("gpu_allocated_bytes"), checkpointing=checkpointing,
    )  # fmt: skip
    return Measured(
        point=point, precision=outcome.measurement.versions.get("precision"), notes=tuple(recording.notes),
        stopped=stopped,
    )  # fmt: skip
