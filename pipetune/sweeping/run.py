"""The sweep as a program: measure until the search ends, save everything, conclude."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pipetune import search
from pipetune.datasets.index import read_index, write_index
from pipetune.errors import FailsAgainError, PipetuneError, UsageError, exit_code_of
from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure import harness
from pipetune.measure.fork_servers import ForkServers
from pipetune.measure.ranks import readings_of
from pipetune.measure.recording import Recording
from pipetune.processes.signals import DeferredSignals, note_signals
from pipetune.records.redact import own_command
from pipetune.records.summaries import AS_IT_IS, WorkloadSummary
from pipetune.records.sweep import SCHEMA, Outcome, slowest_of, to_dict
from pipetune.store.files import OWN_FILE, replace_file
from pipetune.store.folder import RunFolder, check_out, create_run, open_run
from pipetune.store.read import timeline_name
from pipetune.sweeping.imported_loader import resumed_options
from pipetune.sweeping.loop import Measure, sweep
from pipetune.sweeping.measurable import require_achieved
from pipetune.sweeping.observer import SweepObserver
from pipetune.sweeping.options import SweepOptions
from pipetune.sweeping.progress import find_progress
from pipetune.sweeping.result import SweepResult, conclude
from pipetune.sweeping.result_json import to_json
from pipetune.sweeping.resume import (
    Resumed,
    goal_of_resumed,
    read_resumed,
    refuse_another_sweep,
    with_the_emulated_device_of,
)
from pipetune.sweeping.setup import Prepared, plan, prepare
from pipetune.sweeping.summaries import summary_of
from pipetune.sweeping.sweep_plan import Plan
from pipetune.usercode import make_loader
from pipetune.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """A sweep that has ended, whichever way, with its result written to its run folder (``path``)."""

    result: SweepResult
    prepared: Prepared
    path: Path
    exit_code: int
    stopped: str | None
    """``interrupted`` or ``failed``; ``None``: it came to its end. ``message`` says why."""
    message: str | None
    resumable: bool
    """What was measured does not fail by itself."""
    not_written: PipetuneError | None
    """The disk refused ``result.json``: to be raised once the result has been shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the measuring of a sweep ended."""

    outcomes: list[Outcome]
    """Those of an earlier run first."""
    exit_code: int
    stopped: str | None = None
    message: str | None = None
    resumable: bool = True


def start(
    chosen: SweepOptions, out: Path | None, observer: SweepObserver, loader: bytes | None = None,
    measure: Measure = harness.measure,
) -> SweepRun:  # fmt: skip
    """A sweep from its beginning.

    Args:
        out: the run folder, new or empty; ``None``: ``pipetune-runs/TIME-DATASET``.
        observer: is entered and left here.
        loader: the user's own, packed; for a data set ``own:NAME``.
        measure: measures one candidate, on all hosts where there are several.

    Raises:
        UsageError: an option that cannot be used.
        PipetuneError: nothing could be measured, or the disk refuses.
        KeyboardInterrupt, Interrupted: asked to stop before anything was measured.
    """
    began = time.monotonic()
    if chosen.dataset.startswith(make_loader.SCHEME) and loader is None:
        raise UsageError(
            f"--dataset {chosen.dataset}: a loader of your own is swept from Python",
            hint="call pipetune.sweep(make_loader), or name it: --loader pkg.mod:make_loader",
        )
    check_out(out)
    with contextlib.ExitStack() as held:  # the folder stays locked until the result is written
        with observer, ForkServers() as servers, HeldGpus() as gpus:
            observer.on_stage(f"reading the data set {chosen.dataset}", 0, None)
            prepared = prepare(chosen, observer.on_stage, on_accelerator=servers.begin)
            folder = held.enter_context(create_run(out, dataset_name=prepared.images.name, now=datetime.now()))
            index_path = (folder.path / "index.json").resolve()
            write_index(str(index_path), prepared.images)
            if loader is not None:
                replace_file(folder.path / make_loader.file_of(chosen.dataset), [loader], mode=OWN_FILE)
            plan_ = plan(chosen, prepared, str(index_path))
            folder.write_json("run.json", run_record(chosen, prepared, plan_))
            ended = measure_all(_with(servers, gpus, plan_), prepared, folder, observer, (), measure)
            late = held.enter_context(note_signals())
        return _finish(ended, chosen, prepared, plan_, folder, time.monotonic() - began, 0, late)


def resume(
    path: Path, given: Mapping[str, Any], observer: SweepObserver, measure: Measure = harness.measure
) -> SweepRun:  # fmt: skip
    """Resume an interrupted sweep. Raises as :func:`start`.

    Args:
        path: its run folder.
        given: the options that were given with ``--resume``, by field of :class:`SweepOptions`.
        measure: measures one candidate, on all hosts where there are several.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        folder = held.enter_context(open_run(path))  # locked before it is read: no other process adds to it
        with _undamaged(path):
            earlier = read_resumed(path, given)
        chosen = earlier.chosen
        for name in (make_loader.FILE, make_loader.NAMED_FILE):
            with contextlib.suppress(FileNotFoundError):  # there is no code in the folder
                code = folder.path / name
                make_loader.require_own(code, code.stat())
                if name == make_loader.NAMED_FILE:
                    chosen = resumed_options(chosen, code.read_bytes())
        if chosen.hosts > 1 and measure is harness.measure:
            raise UsageError(f"{path} was measured on {chosen.hosts} hosts",
                             hint="resume it on as many, with --hosts auto")  # fmt: skip
        with observer, ForkServers() as servers, HeldGpus() as gpus:
            observer.on_stage(f"reading the data set {chosen.dataset}", 0, None)
            with _undamaged(path):
                prepared = prepare(
                    chosen, observer.on_stage, earlier.run.get("limit_bytes"), on_accelerator=servers.begin
                )
                prepared = with_the_emulated_device_of(earlier.run, prepared)
                refuse_another_sweep(earlier, prepared)
            prepared = replace(prepared, notes=(*prepared.notes, *earlier.problems))
            # What was measured did fit, whatever is free at this moment; unless less is granted now.
            before = earlier.before
            if (chosen.max_ram_bytes, chosen.max_shm_bytes) == (before.max_ram_bytes, before.max_shm_bytes):
                prepared = prepared.with_measured({outcome.candidate for outcome in earlier.outcomes})
            prepared = replace(prepared, goal=goal_of_resumed(earlier, prepared.goal))
            index_path = (folder.path / "index.json").resolve()
            _restore_index(index_path, prepared)
            plan_ = plan(chosen, prepared, str(index_path))
            if plan_.budget_s is not None and "budget_s" not in given:
                plan_ = replace(plan_, budget_s=plan_.budget_s - earlier.spent_s)
            folder.write_json("run.json", resumed_record(earlier, given, run_record(chosen, prepared, plan_)))
            folder.remove_result()
            ended = measure_all(_with(servers, gpus, plan_), prepared, folder, observer, earlier.outcomes, measure)
            late = held.enter_context(note_signals())
        seconds = time.monotonic() - began + earlier.spent_s
        return _finish(ended, chosen, prepared, plan_, folder, seconds, len(earlier.outcomes), late)


def _finish(
    ended: Ended, chosen: SweepOptions, prepared: Prepared, plan: Plan, folder: RunFolder, seconds: float, reused: int,
    late: DeferredSignals,
) -> SweepRun:  # fmt: skip
    fingerprint = prepared.images.fingerprint
    prepared = _with_index(prepared, plan)
    result = conclude_sweep(ended, chosen, prepared, plan, seconds, reused, fingerprint)
    not_written: PipetuneError | None = None
    try:
        folder.write_json("result.json", to_json(result))
    except PipetuneError as error:
        not_written = error
    return SweepRun(
        result=result, prepared=prepared, path=folder.path, exit_code=exit_code(ended, result, late),
        stopped=ended.stopped, message=ended.message, resumable=ended.resumable, not_written=not_written,
    )  # fmt: skip


def exit_code(ended: Ended, result: SweepResult, late: DeferredSignals) -> int:
    """0, unless something stopped the sweep or nothing that was measured can be recommended.

    Args:
        late: signals since everything was measured. The result is written all the same.
    """
    return ended.exit_code or late.exit_code or int(result.status == "failed")


@contextlib.contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Turn the error of a value of the wrong type (a damaged or edited file) into a user's error."""
    try:
        yield
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise UsageError(
            f"{path} cannot be resumed: run.json is damaged ({type(error).__name__}: {error})",
            hint="start a new sweep; what was measured stays readable",
        ) from error


def _restore_index(index_path: Path, prepared: Prepared) -> None:
    """Keep the index that the outcomes were measured with; write it anew where it is damaged or of other images."""
    try:
        stored = read_index(str(index_path))
        same = stored.root == prepared.images.root and len(stored.images) == len(prepared.images.images)
        intact = same and set(stored.images) <= set(prepared.images.images)
    except PipetuneError:
        intact = False
    if not intact:
        write_index(str(index_path), prepared.images)


def measure_all(
    plan: Plan, prepared: Prepared, folder: RunFolder, observer: SweepObserver, known: tuple[Outcome, ...],
    measure: Measure = harness.measure,
) -> Ended:  # fmt: skip
    """Measure until the search ends; whatever stops it, the outcomes so far are kept.

    Args:
        known: outcomes of the same sweep before it was interrupted.
        measure: measures one candidate.
    """
    most = search.max_candidates(plan.space, grid=plan.grid)
    observer.on_start(prepared.accelerator, plan.goal, most, plan.budget_s)
    for outcome in known:
        observer.on_known(outcome)
    outcomes = list(known)
    try:
        for outcome in sweep(plan, _saver(folder, outcomes), observer.on_event, known, measure=measure):
            observer.on_outcome(outcome)
            require_achieved(outcomes, plan.goal)
            observer.on_progress(find_progress(plan, outcomes))
    except KeyboardInterrupt as stop:
        return Ended(outcomes=outcomes, exit_code=exit_code_of(stop), stopped="interrupted", message="interrupted")
    except PipetuneError as error:
        helps = not isinstance(error, FailsAgainError)
        return Ended(
            outcomes=outcomes, exit_code=error.exit_code, stopped="failed", message=str(error), resumable=helps
        )
    measured = any(outcome.measurement for outcome in outcomes if outcome.role != "ceiling")
    return Ended(outcomes=outcomes, exit_code=0 if measured else 1)


def _with(servers: ForkServers, gpus: HeldGpus, plan: Plan) -> Plan:
    """The plan whose candidates may be forks of these servers, and for which these GPUs are held open."""
    return replace(plan, conditions=replace(plan.conditions, servers=servers, gpus=gpus))


def _saver(folder: RunFolder, outcomes: list[Outcome]) -> Callable[[Outcome, Recording], None]:
    def save(outcome: Outcome, recording: Recording) -> None:
        outcomes.append(outcome)  # before it is written: even if the disk refuses, it is in the ranking
        key = timeline_name(outcome)
        folder.append_outcome(outcome)
        folder.remove_timeline(key)  # of an attempt that failed
        m = outcome.measurement
        # Of several hosts the measurement may be another's; the recording is this one's.
        slowest = None if m is None or m.hosts else slowest_of(m)
        of_rank = recording if slowest is None else recording.of_rank(slowest.rank)
        folder.append_timeline(key, "step", [*of_rank.warmup, *of_rank.timed])
        folder.append_timeline(key, "reading", readings_of(recording, 0 if slowest is None else slowest.rank))
        folder.close_timeline(key)

    return save


def _with_index(prepared: Prepared, plan: Plan) -> Prepared:
    """Reread the index: images that do not decode may have been replaced during the sweep."""
    with contextlib.suppress(PipetuneError):
        return replace(prepared, images=read_index(plan.conditions.workload.index_path))
    return prepared


def conclude_sweep(
    ended: Ended, chosen: SweepOptions, prepared: Prepared, plan: Plan, seconds: float, reused: int, fingerprint: str
) -> SweepResult:
    """What the sweep came to, with what it worked on."""
    outcomes = ended.outcomes
    # The child knows the device's name, and what arithmetic "auto" came to.
    versions = next((outcome.measurement.versions for outcome in outcomes if outcome.measurement), {})
    accelerator = replace(prepared.accelerator, name=versions.get("gpu", prepared.accelerator.name))
    asked = plan.conditions.workload
    own = asked.dataset.startswith(make_loader.SCHEME)  # its crops and files are not known
    workload: WorkloadSummary = {
        "model": asked.model, "batch_size": chosen.batch_size, "image_size_px": 0 if own else asked.image_size,
        "precision": versions.get("precision", prepared.precision),
        "seconds": chosen.seconds, "cache": AS_IT_IS if own else asked.cache, "seed": chosen.seed,
    }  # fmt: skip
    if not plan.in_script:  # that starts ranks of its own, and trains as it does
        workload |= {
            "compiled": asked.compiled,
            "ranks": asked.ranks,
            "sync": asked.sync,
            "bind": asked.bind,
            "hosts": chosen.hosts,
        }
        workload |= {} if own else {"augment": asked.augment}
    return conclude(
        outcomes, goal=plan.goal, space=plan.present_space, accelerator=accelerator,
        dataset=summary_of(prepared.images, fingerprint), workload=workload,
        host=to_dict(prepared.host), usable_cores=prepared.host.cores_usable, seconds=seconds, reused=reused,
        does_not_fit=prepared.does_not_fit if plan.unfit is None else plan.unfit.pairs,
        stopped=ended.stopped, message=ended.message, grid=plan.grid,
    )  # fmt: skip


def resumed_record(earlier: Resumed, given: Mapping[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """The run's record with the present options; the first command and its start time stay.

    Args:
        earlier: the run before.
        given: the options that were given anew.
    """
    run, before = earlier.run, earlier.before
    first: dict[str, Any] = {name: run[name] for name in ("started", "command", "cwd") if name in run}
    # The data set stays as it was written: a relative path holds in the folder in which the sweep was started.
    options = {**record["options"], "dataset": before.dataset}
    if given.get("budget_s") is not None:  # for the rest; the next one subtracts what all of it has taken
        options["budget_s"] = given["budget_s"] + earlier.spent_s
    again = [*run.get("resumed", []), {"started": record["started"], "command": record["command"]}]
    return {**record, **first, "options": options, "resumed": again}


def run_record(chosen: SweepOptions, prepared: Prepared, plan: Plan) -> dict[str, Any]:
    """run.json: everything that is needed to understand, repeat or resume the sweep, written before it starts.

    A script's command stands in the options as it is, because resuming starts it again.
    """
    space = {name: value for name, value in to_dict(plan.space).items() if name != "excluded"}
    return {
        "schema": SCHEMA, "kind": "sweep", "pipetune": __version__, "started": datetime.now().astimezone().isoformat(),
        "command": own_command(sys.argv), "cwd": os.getcwd(), "options": to_dict(chosen),
        "workload": to_dict(plan.conditions.workload), "goal": to_dict(plan.goal), "space": space,
        "host": to_dict(prepared.host), "gpus": list(prepared.gpus), "dataset_fingerprint": prepared.images.fingerprint,
        "limit_bytes": prepared.limit_bytes, "notes": list(prepared.all_notes),
        "does_not_fit": [
            {"candidate": to_dict(candidate), "failure": to_dict(failure)}
            for candidate, failure in prepared.does_not_fit
        ],
    }  # fmt: skip
