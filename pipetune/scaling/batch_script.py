"""``pipetune batch-size -- python train.py``: batch sizes in the user's own training loop, in few starts of it.

The loop gets batches of other sizes, made of those that its loader has made. Nothing predicts its memory, so its own
batch size and half of that are measured first. What does not fit ends the script, and what is left is measured in
another start; so is the largest that fits, once more, without what earlier batch sizes have left in the memory.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.errors import PipetuneError, UsageError
from pipetune.measure import failures
from pipetune.measure.conditions import Conditions
from pipetune.measure.script.bench import ScriptBench
from pipetune.processes.signals import note_signals
from pipetune.processes.temporary_folder import temporary_folder
from pipetune.protection.contract import Protection
from pipetune.protection.words import describe_written
from pipetune.records.batch_size import BatchPoint, BatchSizes, ScriptBatches
from pipetune.records.redact import redact_words
from pipetune.records.script import ScriptLoader
from pipetune.records.summaries import AS_IT_IS
from pipetune.records.sweep import AcceleratorSpec, Candidate, Failure, Workload
from pipetune.scaling.batch_run import KILLED
from pipetune.scaling.batch_search import BatchSearch, Measured
from pipetune.scaling.batch_size import (
    REACH,
    cautious_line,
    knee_of,
    largest_of,
    largest_on,
    memory_line,
    own_sizes,
    rounded,
)
from pipetune.sourcetext.settings import option_for, origins_for
from pipetune.sweeping.script_files import ScriptFiles
from pipetune.sweeping.script_setup import own_candidate, uri_of

#: The script's output, in the temporary folder.
_LOG = "script.log"
#: So much of it is looked at for what torch says when memory ends (bytes): torchrun's ranks say much after that.
_MOST_OUTPUT = 1 << 20
#: Longest measurement of one batch size (s): torch.compile compiles anew for each.
_LIMIT_S = 900.0
_INSTEAD = "pipetune batch-size --model resnet50 measures a model of torchvision's"
#: Of a size that did not fit in another start, what is tried instead.
_SMALLER = 0.94
AS_IN_SCRIPT, INTERRUPTED = "as in the script", "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions:
    """The defaults are those of the command and of ``pipetune.batch_size``."""

    command: tuple[str, ...]
    memory: float = 0.92
    """Share of the memory that the script may have which a step may take (0..1]."""
    seconds: float = 1.5
    allow_writes: bool = False
    """What the script writes takes effect: its files are not protected (:mod:`pipetune.protection`)."""


def find_script_batch_size(
    chosen: ScriptOptions, on_point: Callable[[BatchPoint], None], on_next: Callable[[int], None],
    on_stop: Callable[[KeyboardInterrupt], None],
    on_stage: Callable[[str, int, int | None], None] = lambda text, done, total: None,
    keep: Callable[[BatchSizes], None] = lambda found: None,
    files: ScriptFiles | None = None,
) -> BatchSizes:  # fmt: skip
    """Find the largest batch that fits and the smallest that is as fast; arguments and errors as for a model.

    Args:
        on_stage: is told about every second that the script is starting, and for how many seconds.
        keep: is given what is known after each batch size, and the result.
        files: keep the user's files as they are; ``None``: a script that saves a checkpoint is ended instead.

    Raises:
        UsageError: an option that cannot be used, a script that trains on no GPU, or batches that cannot be resized.
        PipetuneError: the script does not train, or nothing could be measured.
        KeyboardInterrupt: asked to stop before anything was measured.
    """
    if not 0.05 <= chosen.memory <= 1:
        raise UsageError(f"--memory {chosen.memory:g} is no share from 0.05 to 1", hint="write --memory 0.92")
    if not 0.2 <= chosen.seconds <= 60:
        raise UsageError(f"--seconds {chosen.seconds:g} is out of range", hint="write --seconds 1.5")
    with temporary_folder("batch") as folder:
        log = folder / _LOG
        try:
            search = BatchSearch(on_point=on_point, on_next=on_next, on_stop=on_stop)
            found = _in_script(chosen, log, search, on_stage, keep, None if files is None else files.protection)
        except PipetuneError as error:
            if isinstance(error, UsageError) or not _has_text(log):
                hint = None if _LOG in (error.hint or "") else error.hint
                raise type(error)(error.message, hint=hint) from None
            raise PipetuneError(error.message, hint=f"see the script's output: {_kept(log)}") from None
        if found.stopped not in (None, INTERRUPTED) and _has_text(log):
            found = replace(found, notes=(*found.notes, f"the script's output: {_kept(log)}"))
        if files is not None:
            found = replace(found, notes=(*found.notes, *describe_written(files.settle(), os.getcwd())))
        keep(found)
        return found


def _kept(log: Path) -> Path:
    """The log, moved to a folder that stays."""
    return log.replace(Path(tempfile.mkdtemp(prefix="pipetune-batch-")) / _LOG)


def _in_script(
    chosen: ScriptOptions, log: Path, search: BatchSearch, on_stage: Callable[[str, int, int | None], None],
    keep: Callable[[BatchSizes], None], protection: Protection | None,
) -> BatchSizes:  # fmt: skip
    guess = 0
    with contextlib.ExitStack() as held:
        with ScriptBench(chosen.command, log, memory=chosen.memory, on_stage=on_stage, protection=protection) as bench:
            loader = bench.begin()
            own = own_candidate(loader)
            _check(loader)
            bench.settle_on(own)
            script = _Script(bench, log, own, _conditions(chosen, loader), chosen.memory)

            def conclude(stopped: str | None) -> BatchSizes:
                limit = float(script.limit_bytes)
                notes = dict.fromkeys((*bench.notes, *search.notes, *_no_steps(script.without_step)))
                of_points = memory_line(search.points)
                return BatchSizes(
                    model=uri_of(chosen.command).partition(":")[2],
                    image_size=None,
                    precision=AS_IN_SCRIPT,
                    device=loader.device_name or "a GPU",
                    total_bytes=script.total_bytes,
                    limit_bytes=round(limit),
                    predicted_largest=guess,
                    largest=largest_of(search.points, limit),
                    knee=knee_of(search.points, limit),
                    points=search.points,
                    fixed_bytes=None if of_points is None else of_points[0],
                    bytes_per_sample=None if of_points is None else of_points[1],
                    stopped=stopped,
                    notes=tuple(notes),
                    script=_summary(chosen.command, loader, own.batch_size),
                )

            search.on_point = _keeping(lambda: keep(conclude(KILLED)), search.on_point)
            search.run_sizes(script.measure, own_sizes(own.batch_size))
            line = cautious_line(search.points)
            if line is None:
                raise _nothing_fits(search.points[-1], loader)
            limit = float(script.limit_bytes)
            guess = max(1, largest_on(line, limit))
            if not search.failed:
                search.run(script.measure, line, limit, reach=REACH)
            if not search.failed and (largest := largest_of(search.points, limit)) is not None:
                with note_signals() as meanwhile:  # the script takes seconds to end
                    bench.close()
                search.stop(meanwhile.error)
                confirm(search, largest, script.measure)
            late = held.enter_context(note_signals())
        search.stop(late.error)
        return conclude(INTERRUPTED if search.stopped is not None else search.failed)


def _keeping(keep: Callable[[], None], on_point: Callable[[BatchPoint], None]) -> Callable[[BatchPoint], None]:
    """What keeps all that is known before it tells of a point."""

    def measured(point: BatchPoint) -> None:
        keep()
        on_point(point)

    return measured


def _check(loader: ScriptLoader) -> None:
    """Refuse scripts whose batch size is not to be found.

    Raises:
        UsageError: why.
    """
    if loader.device != "cuda":
        raise UsageError("the script trains on no CUDA device, whose memory a batch could fill",
                         hint="run it on the machine with the GPU")  # fmt: skip
    if not loader.switchable:
        raise UsageError(f"the batches of a {loader.loader_class} cannot be given another size", hint=_INSTEAD)
    if loader.batch_size is None:
        raise UsageError(
            "the batch size of the script's loader is not known: its data set or its own sampler makes the batches",
            hint=_INSTEAD,
        )


def _nothing_fits(point: BatchPoint, loader: ScriptLoader) -> PipetuneError:
    """Why neither the script's own batch size nor half of it was measured."""
    if point.out_of_memory:
        return PipetuneError(
            f"not even batches of {point.batch_size} fit in the memory that is free, and the script's own are of "
            f"{loader.batch_size}", hint="nvidia-smi shows what else uses the GPU",
        )  # fmt: skip
    return PipetuneError(f"no batch size could be measured: {point.failure}")


def _conditions(chosen: ScriptOptions, loader: ScriptLoader) -> Conditions:
    spec = AcceleratorSpec(kind="cuda", name=loader.device_name or "a GPU", device_index=loader.device_index)
    workload = Workload(
        dataset=uri_of(chosen.command), index_path="", accelerator=spec, model="the script's own", image_size=0,
        precision=AS_IN_SCRIPT, seconds=chosen.seconds, warmup_limit_s=max(2.0, 2 * chosen.seconds),
        cache=AS_IT_IS, seed=0,
    )  # fmt: skip
    return Conditions(workload=workload, paths=(), cores=frozenset(os.sched_getaffinity(0)), timeout_s=_LIMIT_S)


def confirm(search: BatchSearch, size: int, measure: Callable[[int], Measured]) -> None:
    """Measure the largest once more in another start; if it does not fit there, one that is a little smaller as well.

    Where that start fails for another reason, what was measured before stays.
    """
    for wanted in dict.fromkeys((size, rounded(_SMALLER * size))):
        try:
            search.confirm(wanted, measure)
        except PipetuneError as error:
            search.remark(f"batches of {wanted} were not measured once more: {error.message}")
            return
        if not any(point.batch_size == wanted and point.out_of_memory for point in search.points):
            return


class _Script:
    """Measures batch sizes in the script."""

    def __init__(
        self, bench: ScriptBench, log: Path, own: Candidate, conditions: Conditions, share: float
    ) -> None:  # fmt: skip
        self._bench, self._log, self._conditions, self._share = bench, log, conditions, share
        # Nothing is loaded, so the timed phase needs no windows of as many steps as there are workers.
        self._own = replace(own, num_workers=0, prefetch_depth=0)
        self.limit_bytes = self.total_bytes = 0
        """Memory that a step may take, and the device's, once something was measured."""
        self.without_step: list[int] = []
        """Batch sizes that were measured without a step of an optimizer."""

    def measure(self, size: int) -> Measured:
        """One batch size: the rate of the loop with batches that are there already, and the memory it took."""
        began = _size_of(self._log)
        outcome, recording = self._bench.measure(replace(self._own, batch_size=size), "ceiling", self._conditions)
        result = recording.result
        if not self.limit_bytes and result.get("gpu_free_bytes"):
            self.total_bytes = result["gpu_total_bytes"]
            self.limit_bytes = int(self._share * result["gpu_free_bytes"])
            workload = replace(self._conditions.workload, gpu_memory_limit_bytes=self.limit_bytes)
            self._conditions = replace(self._conditions, workload=workload)
        stopped = recording.stopped if isinstance(recording.stopped, KeyboardInterrupt) else None
        if outcome.measurement is None:
            assert outcome.failure is not None
            return Measured(point=self._failed(size, outcome.failure, began), stopped=stopped)
        if result.get("optimizer_stepped") is False:
            self.without_step.append(size)
        point = BatchPoint(batch_size=size, samples_per_s=outcome.measurement.samples_per_s,
                           peak_bytes=result.get("gpu_mem_bytes"),
                           allocated_bytes=result.get("gpu_allocated_bytes"))  # fmt: skip
        return Measured(point=point, precision=AS_IN_SCRIPT, stopped=stopped)

    def _failed(self, size: int, failure: Failure, log_began: int) -> BatchPoint:
        """What came of a batch size that was not measured.

        Args:
            log_began: length of the script's output before (bytes).

        Raises:
            UsageError: its batches cannot be resized, or its memory is not that of one GPU.
        """
        kind, _, why = failure.message.partition(": ")
        if kind == "CannotResizeError" or (kind == "HostMemoryError" and not self.limit_bytes):
            raise UsageError(f"the batches of the script cannot be given another size: {why}", hint=_INSTEAD)
        if kind == "CannotMeasureMemoryError":
            raise UsageError(f"{why}, and batch sizes are found for a model on one", hint=_INSTEAD)
        said = failure.message
        if failures.says_out_of_gpu_memory(f"{said}\n{_output_since(self._log, log_began)}"):
            said, fits = "out of GPU memory", False
        elif kind == "HostMemoryError":  # a bound like the other one
            said, fits = why, False
        else:
            fits = True
        return BatchPoint(
            batch_size=size, samples_per_s=None, peak_bytes=None, failure=said, out_of_memory=not fits
        )  # fmt: skip


def _no_steps(sizes: Sequence[int]) -> list[str]:
    """What to know of batch sizes that were measured without a step of an optimizer."""
    if not sizes:
        return []
    named = ", ".join(map(str, sorted(set(sizes))))
    return [
        f"no step of the optimizer fell into the measurement of batches of {named} (gradient accumulation?): the "
        "memory that it needs during a step is not counted; --seconds 10 measures longer"
    ]


def _size_of(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _has_text(log: Path) -> bool:
    return _size_of(log) > 0


def _output_since(log: Path, began: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(began)
            return file.read(_MOST_OUTPUT).decode(errors="replace")
    except OSError:
        return ""


def _summary(command: Sequence[str], loader: ScriptLoader, own: int) -> ScriptBatches:
    origin = origins_for(loader, command).get("batch_size")
    option = option_for(loader, "batch_size", command)
    where = loader.where if origin is None else f"{origin.file}:{origin.line}"
    return ScriptBatches(
        command=redact_words(command), own=own, ranks=loader.ranks,
        where=_relative(where) if origin is not None or "batch_size" in loader.written else None,
        option=None if option is None else option.words[0],
    )  # fmt: skip


def _relative(where: str | None) -> str | None:
    """A place in a file, from the working folder where it is below that."""
    folder = f"{os.getcwd()}{os.sep}"
    return where.removeprefix(folder) if where is not None else None
