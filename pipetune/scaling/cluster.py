"""The cluster as the user describes it, in a TOML file. A value that cannot be meant is an error that names it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from pipetune.errors import UsageError

#: ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, and with days in front (sbatch(1), ``--time``).
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?")
_MEMORY = re.compile(r"\d+[KMGT]?")
#: A name, or a list of them; nothing that would end a line of the script or begin another option.
_WORD = re.compile(r"[^\s\x00-\x1f\x7f'\"\\#]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What pipetune writes itself.
_OWN_OPTIONS = (
    "--array", "--chdir", "--cpus-per-task", "--dependency", "--error", "--exclusive", "--gpus-per-node", "--job-name",
    "--mem", "--nodes", "--no-requeue", "--ntasks", "--ntasks-per-node", "--open-mode", "--output", "--partition",
    "--requeue", "--signal", "--time", "--wrap",
)  # fmt: skip
_NAMES = ("partition", "account", "qos", "constraint", "reservation", "gres", "namespace", "claim", "cloud", "image")
#: What has to be named for a scheduler, and why.
_NEEDED: dict[str, tuple[str, ...]] = {"slurm": (), "kubernetes": ("image", "claim"), "skypilot": ("claim",)}
_WHY_NEEDED = {
    "image": "name a container image that has pipetune",
    "claim": "name what all tasks share: a volume claim, or a bucket",
}
_OF_SLURM = (
    "partition", "account", "qos", "constraint", "reservation", "gres", "exclusive", "time", "signal_s", "requeue",
    "options",
)  # fmt: skip
#: Keys that not every scheduler reads, and those that do.
_READ_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_SLURM, ("slurm",)),
    **dict.fromkeys(("cpus_per_task", "memory", "at_once"), ("slurm", "kubernetes")),
    **dict.fromkeys(("image", "claim", "mount"), ("kubernetes", "skypilot")),
    "namespace": ("kubernetes",), "cloud": ("skypilot",),
}  # fmt: skip
#: A task that is told to end needs some time to write down what it has measured (s).
_LEAST_SIGNAL_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where tasks run, and what each of them gets: a whole host, unless it is said otherwise."""

    scheduler: Literal["slurm", "kubernetes", "skypilot"] = "slurm"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    gpus_per_node: int | str | None = None
    """A number, or ``TYPE:NUMBER``; ``None``: as the partition has it, or none."""
    gres: str | None = None
    """The same for clusters that know no ``gpus_per_node``: ``gpu:a100:8``."""
    cpus_per_task: int | None = None
    """Cores that a task is granted; ``None``: as the cluster has it. With the host alone it may use all of them."""
    memory: str = "0"
    """As SLURM writes it, ``512G``; ``0``: all."""
    exclusive: bool = True
    """Nothing else runs on the host, which is being measured."""
    time: int | str | None = None
    """Limit of a task, as SLURM writes it: ``30`` minutes, ``1:30:00``, ``1-12``."""
    at_once: int | None = None
    """So many tasks run at the same time at most; ``None``: all that fit."""
    signal_s: int = 120
    """So long before its limit a task is asked to end; it is requeued then, and goes on."""
    requeue: bool = True
    """A task whose host fails, or whose time is over, is requeued."""
    options: tuple[str, ...] = ()
    """Further options of sbatch: ``--mail-type=END``."""
    python: str = "python3"
    """An interpreter that has pipetune, on every host."""
    setup: tuple[str, ...] = ()
    """Lines of shell before it: ``module load cuda``."""
    variables: dict[str, str] = field(default_factory=dict)
    """Of the environment."""
    image: str | None = None
    """Of a container with pipetune in it (kubernetes, skypilot)."""
    claim: str | None = None
    """What all tasks share: a PersistentVolumeClaim (kubernetes), or the name of a bucket (skypilot)."""
    mount: str = "/shared"
    """Where it is mounted."""
    namespace: str | None = None
    cloud: str | None = None
    """Of SkyPilot: ``aws``, ``gcp``."""


def read_cluster(path: Path) -> Cluster:
    """Read and check the file.

    Raises:
        UsageError: it cannot be read, or something in it is not known or cannot be.
    """
    import msgspec

    try:
        values = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read --cluster {path}: {error.strerror}",
                         hint="see guides/cluster in the manual for an example") from error  # fmt: skip
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}", hint="see https://toml.io") from None
    assert isinstance(values, dict)
    known = {one.name.replace("_", "-"): one.name for one in fields(Cluster)}
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("_", "-")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            raise UsageError(f"{path}: a cluster has no {key!r}",
                             hint=f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}")  # fmt: skip
        found[known[name]] = value
    try:
        cluster = msgspec.convert(found, Cluster)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {str(error).replace('`', '')}", hint="see guides/cluster in the manual") from None
    problem = next(_problems(cluster), None)
    if problem is not None:
        raise UsageError(f"{path}: {problem[0]}", hint=problem[1])
    return cluster


def _problems(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """What cannot be, and what to do about it."""
    yield from _names(cluster)
    yield from _amounts(cluster)
    yield from _texts(cluster)
    if cluster.gpus_per_node is not None and cluster.gres is not None:
        yield f"gpus-per-node = {cluster.gpus_per_node} and gres = {cluster.gres!r} say the same", "omit one of them"
    if not cluster.exclusive and cluster.memory == "0":
        yield "exclusive = false and all memory of the host", "name a memory, as 64G"
    if not cluster.exclusive and cluster.cpus_per_task is None:
        yield "exclusive = false, and no cores are named", "name cpus-per-task"
    for name in _NEEDED[cluster.scheduler]:
        if getattr(cluster, name) is None:
            yield f"scheduler = {cluster.scheduler!r}, and no {name}", _WHY_NEEDED[name]
    for one in fields(Cluster):
        value, default = getattr(cluster, one.name), one.default if one.default is not MISSING else {}
        readers = _READ_BY.get(one.name, tuple(_NEEDED))
        if cluster.scheduler not in readers and value != default:
            yield f"{one.name.replace('_', '-')} is for {' and '.join(readers)}", f"omit it for {cluster.scheduler}"


def _names(cluster: Cluster) -> Iterator[tuple[str, str]]:
    for name in _NAMES:
        value = getattr(cluster, name)
        if value is not None and not _WORD.fullmatch(value):
            yield f"{name} = {value!r} is not a valid name", "write it without spaces and quotes"
    if isinstance(cluster.gpus_per_node, str) and not re.fullmatch(r"(?:[\w.-]+:)?[1-9]\d*", cluster.gpus_per_node):
        yield f"gpus-per-node = {cluster.gpus_per_node!r}", "write 8, or a100:8"
    for variable in cluster.variables:
        if not _VARIABLE.fullmatch(variable):
            yield f"variables: {variable!r} is not a valid name", "use letters, digits and _"


def _amounts(cluster: Cluster) -> Iterator[tuple[str, str]]:
    for name in ("gpus_per_node", "cpus_per_task", "at_once"):
        value = getattr(cluster, name)
        if isinstance(value, int) and value < 1:
            yield f"{name.replace('_', '-')} = {value}", "name at least 1, or omit it"
    limit_s = None if cluster.time is None else seconds_of(str(cluster.time))
    if cluster.time is not None and limit_s is None:
        yield f"time = {cluster.time!r}", "write minutes, 1:30:00 or 1-12:00"
    if not _MEMORY.fullmatch(cluster.memory):
        yield f"memory = {cluster.memory!r}", "write 512G, or 0 for all of it"
    if cluster.signal_s < _LEAST_SIGNAL_S:
        yield f"signal-s = {cluster.signal_s} is too short to end in", f"name at least {_LEAST_SIGNAL_S}"
    if limit_s is not None and limit_s <= cluster.signal_s:
        yield f"time = {cluster.time!r} is no longer than signal-s = {cluster.signal_s}", "name a longer time"


def _texts(cluster: Cluster) -> Iterator[tuple[str, str]]:
    for option in cluster.options:
        name = option.partition("=")[0]
        if not re.fullmatch(r"--[a-z][a-z-]*", name) or not _WORD.fullmatch(option):
            yield f"options: {option!r} is not an option of sbatch", "write it as --name=value, without spaces"
        elif name in _OWN_OPTIONS:
            yield f"options: {name} is written by pipetune", "see the other keys of a cluster"
    for line in cluster.setup:
        if "\n" in line or "\r" in line:
            yield f"setup: {line!r} is more than one line", "write a list of lines"


def seconds_of(time: str) -> int | None:
    """A limit as SLURM writes it (s); ``None``: it is none."""
    match = _TIME.fullmatch(time)
    if match is None:
        return None
    a, b, c = (None if match[name] is None else int(match[name]) for name in "abc")
    if match["days"] is not None:
        hours, minutes, seconds = a or 0, b or 0, c or 0
    elif c is not None:
        hours, minutes, seconds = a or 0, b or 0, c
    else:
        hours, minutes, seconds = 0, a or 0, b or 0
    return (24 * int(match["days"] or 0) + hours) * 3600 + 60 * minutes + seconds or None
