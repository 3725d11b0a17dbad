"""Lays an array out in a folder, hands it to SLURM or runs it here, and puts together what came of it.

The folder is the only state. Each task has its own run folder in it, so tasks never write to the same file.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pipetune.errors import PipetuneError, UsageError
from pipetune.processes.signals import defer_signals
from pipetune.processes.told_of_end import told_of_end
from pipetune.records.convert import from_dict, to_dict
from pipetune.records.redact import redact_words
from pipetune.runs.load import load
from pipetune.scaling.cluster import Cluster
from pipetune.scaling.other_clusters import kubernetes_job, skypilot_tasks
from pipetune.scaling.slurm import array_script, collect_script
from pipetune.scaling.tasks import Task
from pipetune.store.files import OWN_FILE, OWN_FOLDER, RUNS_FOLDER, os_errors_as, replace_file

#: Files in the folder.
LAUNCH_FILE, COLLECTED_FILE = "launch.json", "collected.json"
ARRAY_SCRIPT, COLLECT_SCRIPT = "array.sh", "collect.sh"
#: sbatch answers within this time, or the controller does not (s).
_SBATCH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """An array that is laid out."""

    folder: str
    cwd: str
    tasks: tuple[Task, ...]
    job: str | None = None
    """SLURM's number of the array, once it is handed over."""
    collect_job: str | None = None
    collect_refused: str | None = None
    """Why there is no job that collects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What came of one task."""

    number: int
    label: str
    status: str
    """``target_met``, ``target_missed``, ``interrupted`` or ``failed`` as a sweep has it; ``not started``; ``no
    result``: it has begun, and runs or was killed."""
    recommended: str | None = None
    samples_per_s: float | None = None
    ci95: tuple[float, float] | None = None
    goodput: float | None = None
    candidates: int = 0
    """Measured ones, each once."""
    host: str | None = None
    message: str = ""


def scripts(cluster: Cluster, tasks: Sequence[Task], folder: Path, cwd: Path) -> dict[str, str]:
    """The files that the scheduler is given, by their names."""
    if cluster.scheduler == "kubernetes":
        return {"job.yaml": kubernetes_job(cluster, tasks, folder, cwd)}
    if cluster.scheduler == "skypilot":
        return {"tasks.yaml": skypilot_tasks(cluster, tasks, folder, cwd)}
    return {
        ARRAY_SCRIPT: array_script(cluster, tasks, folder, cwd),
        COLLECT_SCRIPT: collect_script(cluster, folder, cwd),
    }


def new_folder(out: Path | None, now: datetime) -> Path:
    """Where the array will lie; it is not made yet, or was begun (:func:`is_begun`). Absolute.

    Raises:
        UsageError: there is something already.
    """
    folder = Path(os.path.abspath(out or RUNS_FOLDER / f"{now:%Y%m%d-%H%M%S}-array"))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not (folder / LAUNCH_FILE).exists():
        raise UsageError(f"--out {folder} is not empty", hint="name a new folder")
    return folder


def is_begun(cluster: Cluster, tasks: Sequence[Task], folder: Path, cwd: Path) -> bool:
    """Whether a folder has this very array, which was begun on this host and can go on.

    Raises:
        UsageError: it has another one, or one that a scheduler was given.
    """
    if not (folder / LAUNCH_FILE).exists():
        return False
    text = scripts(cluster, tasks, folder, cwd).get(ARRAY_SCRIPT, "")
    with os_errors_as("read", folder):
        same = (folder / ARRAY_SCRIPT).read_bytes() == text.encode("utf-8", "surrogateescape")
    job = read_launch(folder).job
    if same and job is not None:
        raise UsageError(f"--out {folder} was submitted already, as job {job}",
                         hint=f"pipetune launch --collect {shlex.quote(str(folder))} shows it")  # fmt: skip
    if not same:
        raise UsageError(f"--out {folder} has another array", hint="name a new folder")
    return True


def lay_out(cluster: Cluster, tasks: Sequence[Task], folder: Path, cwd: Path) -> Launch:
    """Make the folder with the scripts.

    Raises:
        PipetuneError: the disk refuses.
    """
    launch = Launch(folder=str(folder), cwd=str(cwd), tasks=tuple(tasks))
    with os_errors_as("create", folder):
        folder.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
    for name, text in scripts(cluster, tasks, folder, cwd).items():
        # A command may have a password in it.
        replace_file(folder / name, [text.encode("utf-8", "surrogateescape")], mode=OWN_FILE)
    _write(launch)
    return launch


def _write(launch: Launch) -> None:
    content = to_dict(launch)
    for task in content["tasks"]:
        task["words"] = list(redact_words(task["words"]))
    replace_file(Path(launch.folder) / LAUNCH_FILE, [json.dumps(content, indent=2).encode(), b"\n"], mode=OWN_FILE)


def read_launch(folder: Path) -> Launch:
    """The array in a folder.

    Raises:
        UsageError: there is none.
    """
    try:
        return from_dict(Launch, json.loads((folder / LAUNCH_FILE).read_bytes()))
    except OSError as error:
        raise UsageError(f"{folder} has no {LAUNCH_FILE}: {error.strerror}",
                         hint="name the folder that pipetune launch has written") from error  # fmt: skip
    except (ValueError, TypeError, KeyError) as error:
        raise PipetuneError(f"{folder / LAUNCH_FILE} is damaged: {error}", hint="launch the array again") from error


def submit(launch: Launch) -> Launch:
    """Hand the array to SLURM, and after it the job that collects, which a cluster may refuse.

    Raises:
        UsageError: there is no SLURM here, or it refuses the array.
        PipetuneError: the controller does not answer.
    """
    folder = Path(launch.folder)
    try:
        job = _sbatch([str(folder / ARRAY_SCRIPT)])
    except UsageError:
        if not any(folder.glob("task-*")):  # begun on this host, it can go on there
            for name in (LAUNCH_FILE, ARRAY_SCRIPT, COLLECT_SCRIPT):  # so that the corrected command finds it empty
                (folder / name).unlink(missing_ok=True)
        raise
    launch = replace(launch, job=job)
    _write(launch)  # before anything else can go wrong: the array runs now
    try:
        collect = _sbatch([f"--dependency=afterany:{launch.job}", str(folder / COLLECT_SCRIPT)])
    except PipetuneError as error:
        return replace(launch, collect_refused=str(error))
    launch = replace(launch, collect_job=collect)
    _write(launch)
    return launch


def _sbatch(words: Sequence[str]) -> str:
    if shutil.which("sbatch") is None:
        raise UsageError("there is no sbatch here", hint="run it where jobs are submitted; --print shows the script, "
                         "--local runs the tasks on this host")  # fmt: skip
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=_SBATCH_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise PipetuneError(
            f"sbatch has not answered for {_SBATCH_S:.0f} s",
            hint="is the controller up? scontrol ping says; see squeue for what was taken",
        ) from error
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    if done.returncode:
        raise UsageError(f"sbatch refuses {Path(words[-1]).name}: {said[-1] if said else done.returncode}",
                         hint="correct the cluster file; sinfo shows partitions and hosts")  # fmt: skip
    # The last such line: some clusters' sbatch prints other things first.
    numbers = re.findall(r"^(\d+)(?:;.*)?$", done.stdout, re.MULTILINE)
    if not numbers:
        raise PipetuneError(
            f"sbatch took {Path(words[-1]).name} and named no job: {said[-1] if said else 'it said nothing'}",
            hint="squeue --me shows it, scancel ends it",
        )
    return str(numbers[-1])


def run_here(launch: Launch, on_task: Callable[[Task], None]) -> int:
    """Run all tasks on this host, one after the other, by the same script; returns the first exit code that is not 0.

    Raises:
        KeyboardInterrupt: asked to stop; what was measured is kept.
    """
    code = 0
    for task in launch.tasks:
        on_task(task)
        variables = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task.number)}
        # In a session of its own: Ctrl-C comes to us alone, and the script's trap ends the sweep in peace.
        process = subprocess.Popen(
            told_of_end(["bash", str(Path(launch.folder) / ARRAY_SCRIPT)]), env=variables, start_new_session=True
        )
        try:
            ended = process.wait()
        except BaseException:
            process.terminate()
            with defer_signals():  # or a second Ctrl-C would leave the sweep behind
                process.wait()
            raise
        code = code or (128 - ended if ended < 0 else ended)
    return code


def collect(folder: Path) -> tuple[Launch, list[TaskResult]]:
    """What came of each task.

    Raises:
        UsageError: there is no array.
    """
    launch = read_launch(folder)
    return launch, [_result_of(folder / f"task-{task.number}", task) for task in launch.tasks]


def as_json(launch: Launch, found: Sequence[TaskResult]) -> dict[str, Any]:
    """What was collected, for scripts."""
    return {"schema": 1, "kind": "array", "job": launch.job, "tasks": [to_dict(one) for one in found]}


def write_collected(folder: Path, launch: Launch, found: Sequence[TaskResult]) -> None:
    """Write ``collected.json``.

    Raises:
        PipetuneError: the disk refuses.
    """
    content = json.dumps(as_json(launch, found), indent=2).encode()
    replace_file(folder / COLLECTED_FILE, [content, b"\n"], mode=OWN_FILE)


def _result_of(folder: Path, task: Task) -> TaskResult:
    common: dict[str, Any] = {"number": task.number, "label": task.label}
    code = _code_of(folder)
    if code not in (None, 0):
        log = folder.with_name(f"{folder.name}.log")  # there is none of a task that ran on this host
        common["message"] = f"it ended with exit code {code}" + (f": see {log.name}" if log.exists() else "")
    if not (folder / "run.json").exists():
        return TaskResult(status="not started" if code is None else "failed", **common)
    try:
        run = load(folder)
    except PipetuneError as error:
        return TaskResult(**{**common, "status": "failed", "message": str(error)})
    measured = {outcome.candidate.key for outcome in run.outcomes if outcome.measurement and outcome.role != "ceiling"}
    host = run.info.get("host") or {}
    common |= {"candidates": len(measured), "host": host.get("hostname") if isinstance(host, dict) else None}
    status = run.result.get("status")
    if not isinstance(status, str):
        return TaskResult(status="no result", **common)
    if status == "failed" and isinstance(run.result.get("message"), str):
        common["message"] = run.result["message"]
    recommended = run.result.get("recommended")
    if not isinstance(recommended, dict) or not isinstance(recommended.get("key"), str):
        return TaskResult(status=status, **common)
    try:
        return from_dict(TaskResult, {
            **common, "status": status, "recommended": recommended["key"],
            **{name: recommended.get(name) for name in ("samples_per_s", "ci95", "goodput")},
        })  # fmt: skip
    except TypeError as error:
        return TaskResult(**{**common, "status": "failed", "message": f"its result is damaged: {error}"})


def _code_of(folder: Path) -> int | None:
    """Exit code of a task's last start; ``None``: it has not ended, or was killed with its script."""
    try:
        return int(folder.with_name(f"{folder.name}.code").read_text())
    except (OSError, ValueError):
        return None
