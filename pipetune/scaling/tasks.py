"""The tasks of a job array: one command for each combination of values. Pure."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipetune.errors import UsageError

#: Commands that write a run folder, and go on where they were.
COMMANDS = ("sweep",)
#: Options that a task has of its own.
_OWN = ("out", "resume", "json", "config", "save-config")
_IN_FOLDER = "omit it: each task has a folder of its own in pipetune launch --out DIR"
_INSTEAD = {
    "out": _IN_FOLDER, "resume": _IN_FOLDER, "json": "omit it: result.json in the folder of each task is the same",
    "config": "write its options on the command line",
}  # fmt: skip
#: SLURM's default limit of an array (MaxArraySize 1001).
_MOST_TASKS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One element of the array."""

    number: int
    label: str
    """What distinguishes it: ``ranks=4, device=a100``; ``""``: there is one task."""
    words: tuple[str, ...]
    """The command without ``pipetune`` in front, and without the run folder."""


def tasks_of(command: Sequence[str], array: Sequence[str], options: Mapping[str, type]) -> list[Task]:
    """All combinations of the values, in the order in which they are given.

    Args:
        command: as the user has written it: ``sweep --dataset /data``.
        array: each ``NAME=V1,V2,…``.
        options: of the command, without dashes in front, and the types of their values.

    Raises:
        UsageError: it is another command, has an option that tasks have themselves, or an option that it does not know.
    """
    if not command or command[0] not in COMMANDS:
        raise UsageError(f"pipetune {command[0] if command else ''} cannot be launched".replace("  ", " "),
                         hint="write pipetune launch --cluster FILE -- sweep --dataset DIR")  # fmt: skip
    given = {word.partition("=")[0].removeprefix("--") for word in _of_pipetune(command) if word.startswith("--")}
    for name in _OWN:
        if name in given:
            raise UsageError(f"a command with --{name} cannot be launched", hint=_INSTEAD.get(name, "omit it"))
    axes = dict(_axis(text, options, given) for text in array)
    if len(axes) < len(array):
        raise UsageError(f"--array names an option twice: {' '.join(array)}", hint="write all its values in one list")
    combinations = list(itertools.product(*axes.values()))
    if len(combinations) > _MOST_TASKS:
        raise UsageError(f"--array makes {len(combinations):,} tasks", hint=f"{_MOST_TASKS:,} are the most")
    found = []
    for number, values in enumerate(combinations):
        chosen = [f"--{name}={value}" for name, value in zip(axes, values, strict=True)]
        label = ", ".join(f"{name}={value}" for name, value in zip(axes, values, strict=True))
        found.append(Task(number=number, label=label, words=(command[0], *chosen, *command[1:])))
    return found


def hosts_of(tasks: Sequence[Task]) -> int:
    """The number of hosts that each task measures at the same time.

    Raises:
        UsageError: tasks differ in it, as those of an array cannot, or it is no number.
    """
    found = {_hosts_in(task.words) for task in tasks}
    if len(found) > 1:
        raise UsageError("--array hosts=…: all tasks of an array have the same number of hosts",
                         hint="launch an array for each number, with --hosts in the command")  # fmt: skip
    return found.pop() if found else 1


def _hosts_in(words: Sequence[str]) -> int:
    own = list(_of_pipetune(words))
    text = next((word.partition("=")[2] for word in own if word.startswith("--hosts=")), None)
    if text is None:
        text = own[own.index("--hosts") + 1] if "--hosts" in own[:-1] else "1"
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--hosts {text} in an array", hint="write the number of hosts of each task: --hosts 4")
    return int(text)


def require_one_host(tasks: Sequence[Task], where: str) -> None:
    """Refuse tasks of several hosts where those cannot be had.

    Raises:
        UsageError: they have several.
    """
    hosts = hosts_of(tasks)
    if hosts > 1:
        raise UsageError(f"--hosts {hosts} cannot be had {where}", hint="hand the array to SLURM: --submit")


def _of_pipetune(command: Sequence[str]) -> Sequence[str]:
    """The words before those of a script."""
    return command[: command.index("--")] if "--" in command else command


def _axis(text: str, options: Mapping[str, type], given: Collection[str]) -> tuple[str, list[str]]:
    """An option and its values.

    Raises:
        UsageError: it is no such option, has no values, or is in the command already.
    """
    name, equals, listed = text.partition("=")
    name = name.strip().removeprefix("--").replace("_", "-")
    values = [value.strip() for value in listed.split(",")]
    if not equals or not all(values):
        raise UsageError(f"--array {text!r} has no list of values", hint='write --array "ranks=1,2,4,8"')
    if name == "nodes":
        raise UsageError("--array nodes=…: all tasks of an array have the same number of hosts",
                         hint="write --hosts 4 in the command; ranks share a host: --array ranks=1,2,4")  # fmt: skip
    if name not in options or name in _OWN:
        near = difflib.get_close_matches(name, options, 1, 0.5)
        raise UsageError(f"--array: the command has no option {name!r}",
                         hint=f"did you mean {near[0]!r}?" if near else "see its --help")  # fmt: skip
    if options[name] is bool:
        raise UsageError(f"--array: --{name} takes no value", hint="launch two arrays, one with it and one without")
    if name in given:
        raise UsageError(f"--{name} is in the command and in --array", hint="omit one of them")
    if len(set(values)) < len(values):
        raise UsageError(f"--array {text!r} names a value twice", hint="each would be measured twice")
    return name, values
