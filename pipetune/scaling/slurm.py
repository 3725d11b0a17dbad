"""The scripts for SLURM: a pure function of the cluster, the tasks and the folder. Source: sbatch(1) of SLURM 22.05.

Each task is a process on a host of its own, which is being measured, or on each of several (``--hosts``). It goes on
where it was when it is requeued: because a host failed, or because its time was over, which it learns ``signal_s``
before and writes down what it has. Its script gets SIGUSR1 then, so that a SIGTERM is what it is elsewhere:
``scancel``, which ends it for good.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipetune.errors import UsageError
from pipetune.scaling.cluster import Cluster
from pipetune.scaling.tasks import Task, hosts_of

#: A task whose time is over is requeued until it was so often, for whatever reason: it may be one that never ends.
_MOST_RESTARTS = 5


def array_script(cluster: Cluster, tasks: Sequence[Task], folder: Path, cwd: Path) -> str:
    """The script of the job array.

    Args:
        folder: of all tasks, on a file system that all hosts share; absolute.
        cwd: where the command's relative paths hold; absolute.
    """
    limit = f"%{cluster.at_once}" if cluster.at_once else ""
    hosts = hosts_of(tasks)
    lines = [
        "#!/bin/bash",
        *_directives(cluster, folder, "task-%a", f"pipetune-{folder.name}", hosts),
        f"#SBATCH --array=0-{len(tasks) - 1}{limit}",
        f"#SBATCH --signal=B:USR1@{cluster.signal_s}",
        "#SBATCH --requeue" if cluster.requeue else "#SBATCH --no-requeue",
        *_resources(cluster),
        *(f"#SBATCH {option}" for option in cluster.options),
        "",
        f"run={shlex.quote(str(folder))}",
        'out="$run/task-$SLURM_ARRAY_TASK_ID"',
        *_traps(cluster),
        *_environment(cluster, cwd),
        *words_of_task(tasks, "$SLURM_ARRAY_TASK_ID", hosts),
        # In the background, so that bash runs a trap at once and not after it.
        f'{_on_hosts(cluster, hosts)}{shlex.quote(cluster.python)} -m pipetune "$@" &',
        "child=$!",
        "until_ended",
    ]
    return "\n".join(lines) + "\n"


def _on_hosts(cluster: Cluster, hosts: int) -> str:
    """What starts a command once on each of several hosts."""
    if hosts == 1:
        return ""
    # Newer versions of srun do not take the job's cores by themselves.
    cores = "" if cluster.cpus_per_task is None else f"--cpus-per-task={cluster.cpus_per_task} "
    return f"srun --nodes={hosts} --ntasks-per-node=1 {cores}"


def words_of_task(tasks: Sequence[Task], index: str, hosts: int = 1) -> Iterator[str]:
    """Lines of shell after which ``"$@"`` has the words of a task; one that is complete ends there.

    Args:
        index: the number of the task, as the shell has it. Its folder is ``$out``.
        hosts: of each task.
    """
    yield f'case "{index}" in'
    yield from (f"{task.number}) set -- {shlex.join(task.words)} ;;" for task in tasks)
    yield "esac"
    yield """if grep -q '^  "complete": true' "$out/result.json" 2>/dev/null; then exit 0; fi"""
    yield 'if [ -e "$out/run.json" ]; then'
    again = " --hosts auto" if hosts > 1 else ""
    yield f'  set -- "$1" --resume "$out"{again}  # requeued: with the options that it began with'
    yield "else"
    # It ended before anything was measured, and a new run wants an empty folder.
    yield '  [ -e "$out" ] && mv "$out" "$out.unfinished.$(date +%s)"'
    yield '  command="$1"; shift; set -- "$command" --out "$out" "$@"'
    yield "fi"


def _traps(cluster: Cluster) -> Iterator[str]:
    """What the script does when it is told to end: wait for its sweep, which writes down what it has."""
    yield "child="
    yield "until_ended() {"
    yield "  code=143"
    # wait ends with each signal that is trapped, also while the sweep still writes.
    yield '  while [ -n "$child" ] && kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done'
    yield '  [ -n "$child" ] && { wait "$child"; code=$?; }'
    yield '  echo "$code" > "$out.code"'
    yield '  exit "$code"'
    yield "}"
    yield """trap '[ -n "$child" ] && kill -TERM "$child" 2>/dev/null; until_ended' TERM INT"""
    if not cluster.requeue:
        yield """trap '[ -n "$child" ] && kill -TERM "$child" 2>/dev/null' USR1"""
        return
    yield "again() {"
    yield '  [ -n "$child" ] && kill -TERM "$child" 2>/dev/null && wait "$child"'
    yield f'  if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {_MOST_RESTARTS} ]; then'
    yield '    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"'
    yield "  fi"
    yield "  until_ended"
    yield "}"
    yield "trap again USR1"


def collect_script(cluster: Cluster, folder: Path, cwd: Path) -> str:
    """The script of the job that comes after all tasks, whatever came of them, and collects their results."""
    lines = [
        "#!/bin/bash",
        *_directives(cluster, folder, "collect", f"pipetune-{folder.name}-collect"),
        "#SBATCH --time=10",
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --mem=1G",
        "",
        *_environment(cluster, cwd),
        f"exec {shlex.quote(cluster.python)} -m pipetune launch --collect {shlex.quote(str(folder))}",
    ]
    return "\n".join(lines) + "\n"


def _directives(cluster: Cluster, folder: Path, output: str, name: str, hosts: int = 1) -> Iterator[str]:
    yield f"#SBATCH --job-name={''.join(c if c.isalnum() or c in '-_.' else '-' for c in name)}"
    yield f"#SBATCH --nodes={hosts}"
    yield "#SBATCH --ntasks-per-node=1"
    yield f'#SBATCH --output="{_in_pattern(folder)}/{output}.log"'
    yield "#SBATCH --open-mode=append"
    for option in ("partition", "account", "qos", "reservation"):
        if (value := getattr(cluster, option)) is not None:
            yield f"#SBATCH --{option}={value}"


def _in_pattern(folder: Path) -> str:
    """A path in a pattern of file names, in which ``%`` has a meaning of its own.

    Raises:
        UsageError: it has a character that would end the directive.
    """
    if not re.fullmatch(r"[^\x00-\x1f\x7f\"\\]+", str(folder)):
        raise UsageError(f"--out {str(folder)!r} has characters that sbatch does not take", hint="name another folder")
    return str(folder).replace("%", "%%")


def _resources(cluster: Cluster) -> Iterator[str]:
    if cluster.exclusive:
        yield "#SBATCH --exclusive"
    yield f"#SBATCH --mem={cluster.memory}"
    if cluster.cpus_per_task is not None:
        yield f"#SBATCH --cpus-per-task={cluster.cpus_per_task}"
    if cluster.gpus_per_node is not None:
        yield f"#SBATCH --gpus-per-node={cluster.gpus_per_node}"
    if cluster.gres is not None:
        yield f"#SBATCH --gres={cluster.gres}"
    if cluster.constraint is not None:
        yield f"#SBATCH --constraint={cluster.constraint}"
    if cluster.time is not None:
        yield f"#SBATCH --time={cluster.time}"


def _environment(cluster: Cluster, cwd: Path) -> Iterator[str]:
    yield f"cd {shlex.quote(str(cwd))} || exit 2"
    yield from (f"export {name}={shlex.quote(value)}" for name, value in cluster.variables.items())
    yield from cluster.setup
    if cluster.setup:
        yield "set +e  # if a line above has asked for -e: exit codes are looked at below"
