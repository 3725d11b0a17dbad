"""The sweep as a program: measure until the search ends, save everything, conclude."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pipetune import search
from pipetune.cli.output import write_result
from pipetune.datasets.index import read_index, write_index
from pipetune.errors import PipetuneError, UsageError, exit_code_of
from pipetune.measure.recording import Recording
from pipetune.records.sweep import SCHEMA, Outcome, to_dict
from pipetune.report.terminal.progress import Display
from pipetune.store.files import replace_file, told
from pipetune.store.folder import RunFolder, create_run
from pipetune.store.read import timeline_name
from pipetune.sweeping.loop import Plan, sweep
from pipetune.sweeping.options import SweepOptions
from pipetune.sweeping.result import SweepResult, conclude
from pipetune.sweeping.resume import FREE_OPTIONS, Resumed
from pipetune.sweeping.setup import Prepared, plan, prepare
from pipetune.usercode import make_loader
from pipetune.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the measuring came to its end."""

    outcomes: list[Outcome]
    """Those of an earlier run first."""
    code: int
    stopped: str | None = None
    """``interrupted`` or ``failed``."""
    message: str | None = None


def measure_new(
    chosen: SweepOptions, out: Path | None, display: Display, loader: bytes | None = None
) -> tuple[Path, int, str | None]:
    """The same for a program: nothing is printed but by ``display``.

    Args:
        loader: the user's own, packed; for a data set ``own:NAME``.

    Returns:
        the run folder with its result written, the exit code, and why a sweep that failed did.

    Raises:
        PipetuneError: nothing could be measured, or the disk refuses.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        with display:
            ended, prepared, plan_, folder = start_new(chosen, out, display, held, loader)
        fingerprint = prepared.images.fingerprint
        prepared = with_index(prepared, plan_)
        result = conclude_run(ended, chosen, prepared, plan_, time.monotonic() - began, 0, fingerprint)
        refused = write_result(result, folder, None)
        if refused is not None:
            raise refused
        return folder.path, ended.code, ended.message


def start_new(
    chosen: SweepOptions, out: Path | None, display: Display, held: contextlib.ExitStack, loader: bytes | None = None
) -> tuple[Ended, Prepared, Plan, RunFolder]:
    """The run folder stays locked until ``held`` is closed."""
    if chosen.dataset.startswith(make_loader.SCHEME) and loader is None:
        raise UsageError(
            f"--dataset {chosen.dataset}: a loader of your own is swept from Python",
            hint="call pipetune.sweep(make_loader)",
        )
    prepared = prepare(chosen, display.on_stage)
    folder = held.enter_context(create_run(out, dataset_name=prepared.images.name, now=datetime.now()))
    index_path = (folder.path / "index.json").resolve()
    with told("write", index_path):
        write_index(str(index_path), prepared.images)
        if loader is not None:
            replace_file(folder.path / make_loader.FILE, loader)
    plan_ = plan(chosen, prepared, str(index_path))
    folder.write_json("run.json", run_record(chosen, prepared, plan_))
    return measure_all(plan_, prepared, folder, display, ()), prepared, plan_, folder


@contextlib.contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """What is of another type than we write it has been damaged, or edited."""
    try:
        yield
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise UsageError(
            f"{path} cannot be gone on with: run.json is damaged ({type(error).__name__}: {error})",
            hint="start a new sweep; what was measured stays readable",
        ) from error


def restore_index(index_path: Path, prepared: Prepared) -> None:
    """Keep the index that the outcomes were measured with, in which bad images may have been replaced."""
    try:
        stored = read_index(str(index_path))
        paths = {image.path for image in prepared.images.images}
        same = stored.root == prepared.images.root and len(stored.images) == len(prepared.images.images)
        intact = same and all(image.path in paths for image in stored.images)
    except PipetuneError:
        intact = False
    if not intact:
        with told("write", index_path):
            write_index(str(index_path), prepared.images)


def measure_all(
    plan: Plan, prepared: Prepared, folder: RunFolder, display: Display, known: tuple[Outcome, ...]
) -> Ended:
    """Whatever stops the sweep, what was measured is kept."""
    display.emulated = prepared.accelerator.kind == "emulated"
    display.candidates = search.most_candidates(plan.space, grid=plan.grid)
    for outcome in known:
        display.on_known(outcome)
    outcomes = list(known)
    try:
        for outcome in sweep(plan, _saver(folder, outcomes), display.on_event, known):
            display.on_outcome(outcome)
    except KeyboardInterrupt as stop:
        return Ended(outcomes=outcomes, code=exit_code_of(stop), stopped="interrupted", message="interrupted")
    except PipetuneError as error:
        return Ended(outcomes=outcomes, code=error.exit_code, stopped="failed", message=str(error))
    measured = any(outcome.measurement for outcome in outcomes if outcome.role != "ceiling")
    return Ended(outcomes=outcomes, code=0 if measured else 1)


def _saver(folder: RunFolder, outcomes: list[Outcome]) -> Callable[[Outcome, Recording], None]:
    def save(outcome: Outcome, recording: Recording) -> None:
        outcomes.append(outcome)  # before it is written: even if the disk refuses, it is in the ranking
        key = timeline_name(outcome)
        folder.append_outcome(outcome)
        folder.remove_timeline(key)  # of an attempt that failed
        folder.append_timeline(key, "step", [*recording.warmup, *recording.timed])
        folder.append_timeline(key, "reading", recording.readings)
        folder.close_timeline(key)

    return save


def with_index(prepared: Prepared, plan: Plan) -> Prepared:
    """With the images as they are now: bad ones may have been found and replaced on the way."""
    with contextlib.suppress(PipetuneError):
        return replace(prepared, images=read_index(plan.setting.workload.index_path))
    return prepared


def conclude_run(
    ended: Ended, chosen: SweepOptions, prepared: Prepared, plan: Plan, seconds: float, reused: int, fingerprint: str
) -> SweepResult:
    """What the sweep came to, with what it worked on."""
    images, outcomes = prepared.images, ended.outcomes
    # The child knows the device's name, and what arithmetic "auto" came to.
    said = next((outcome.measurement.versions for outcome in outcomes if outcome.measurement), {})
    accelerator = replace(prepared.accelerator, name=said.get("gpu", prepared.accelerator.name))
    dataset = {
        "name": images.name, "root": images.root, "images": len(images.images), "found_images": images.found_images,
        "classes": len(images.classes), "shards": len(images.files) if images.in_shards else 0,
        "skipped": images.skipped_count,
        "skipped_files": [{"path": path, "reason": reason} for path, reason in images.skipped],
        "mean_bytes": images.mean_bytes, "median_width_px": images.median_size[0],
        "median_height_px": images.median_size[1], "fingerprint": fingerprint,
    }  # fmt: skip
    workload = {
        "model": chosen.model, "batch_size": chosen.batch_size, "image_size_px": chosen.image_size,
        "precision": said.get("precision", prepared.precision),
        "seconds": chosen.seconds, "cache": chosen.cache, "seed": chosen.seed,
    }  # fmt: skip
    return conclude(
        outcomes, goal=plan.goal, space=plan.space, accelerator=accelerator, dataset=dataset, workload=workload,
        host=to_dict(prepared.host), usable_cores=prepared.host.cores_usable, seconds=seconds, reused=reused,
        does_not_fit=prepared.does_not_fit, stopped=ended.stopped, message=ended.message, grid=plan.grid,
    )  # fmt: skip


def resumed_record(earlier: Resumed, record: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The run's record with what is new in it; how it was first called stays."""
    first: dict[str, Any] = {name: earlier.run[name] for name in ("started", "command", "cwd") if name in earlier.run}
    options = {**earlier.run["options"], **{name: given[name] for name in FREE_OPTIONS if name in given}}
    again = [*earlier.run.get("resumed", []), {"started": record["started"], "command": record["command"]}]
    return {**record, **first, "options": options, "resumed": again}


def run_record(chosen: SweepOptions, prepared: Prepared, plan: Plan) -> dict[str, Any]:
    """run.json: everything that is needed to understand, repeat or resume the sweep, written before it starts."""
    space = {name: value for name, value in to_dict(plan.space).items() if name != "excluded"}
    return {
        "schema": SCHEMA, "kind": "sweep", "pipetune": __version__, "started": datetime.now().astimezone().isoformat(),
        "command": shlex.join(sys.argv), "cwd": os.getcwd(), "options": to_dict(chosen),
        "workload": to_dict(plan.setting.workload), "goal": to_dict(plan.goal), "space": space,
        "host": to_dict(prepared.host), "gpus": list(prepared.gpus), "dataset_fingerprint": prepared.images.fingerprint,
        "limit_bytes": prepared.limit_bytes, "notes": list(prepared.all_notes),
        "does_not_fit": [
            {"candidate": to_dict(candidate), "failure": to_dict(failure)}
            for candidate, failure in prepared.does_not_fit
        ],
    }  # fmt: skip
