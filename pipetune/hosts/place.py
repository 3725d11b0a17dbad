"""Which of several hosts this process is on, as the launcher's environment says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipetune.errors import UsageError

#: Writes a SLURM list of hosts out.
NamesOf = Callable[[str], tuple[str, ...]]
#: As many hosts as the launcher has started this command on.
AUTO_HOSTS = 0
#: Ports of SLURM jobs begin here, below those that the kernel gives away; each step of a job has its own.
_FIRST_PORT, _PORTS = 20_000, 12_000
#: Longest time for SLURM to write out a list of hosts (s).
_NAMES_S = 20.0
_HINT = "start it once on each host: srun --ntasks-per-node=1 pipetune sweep --hosts auto …, or torchrun"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """This host among the others."""

    host: int
    """Its number, from 0; host 0 decides what is measured. People are told numbers from 1."""
    hosts: int
    address: str
    """Of host 0."""
    port: int
    names: tuple[str, ...] = ()
    """Of all hosts; ``()``: the launcher does not say."""
    has_store: bool = False
    """The launcher keeps a store at the address already, as torchrun does."""

    def name_of(self, host: int) -> str:
        """``'host 2 of 4 (n3)'``."""
        name = f" ({self.names[host]})" if self.names else ""
        return f"host {host + 1} of {self.hosts}{name}"


def parse_hosts(text: str) -> int:
    """``4``, or ``auto``, which is :data:`AUTO_HOSTS`.

    Raises:
        UsageError: neither.
    """
    if text.strip() == "auto":
        return AUTO_HOSTS
    if not text.strip().isdecimal() or int(text) < 1:
        raise UsageError(f"{text!r} is no number of hosts", hint="write --hosts 4, or --hosts auto")
    return int(text)


def find_place(wanted: int, env: Mapping[str, str], names_of: NamesOf | None = None) -> HostPlace:
    """Where this process is among the hosts: by torchrun's variables, SLURM's, or those of any launcher of ranks.

    Args:
        wanted: number of hosts; :data:`AUTO_HOSTS`: as many as there are.
        names_of: writes a SLURM list of hosts out (``n[1-3]``); ``None``: SLURM is asked.

    Raises:
        UsageError: no launcher has set its variables, it has started more than one process on a host, or on another
            number of hosts.
    """
    place = _of_torchrun(env) or _of_slurm(env, names_of) or _of_ranks(env)
    if place is not None:
        if wanted not in (AUTO_HOSTS, place.hosts):
            raise UsageError(f"--hosts {wanted}, but this command was started on {place.hosts} hosts",
                             hint="write --hosts auto, or start it on as many")  # fmt: skip
        return place
    if wanted == 1:
        return HostPlace(host=0, hosts=1, address="127.0.0.1", port=0)
    shown = "auto" if wanted == AUTO_HOSTS else wanted
    raise UsageError(f"--hosts {shown}: no launcher says which host this is", hint=_HINT)


def _of_torchrun(env: Mapping[str, str]) -> HostPlace | None:
    if "GROUP_RANK" not in env or "GROUP_WORLD_SIZE" not in env:
        return None
    _one_each(_number(env, "LOCAL_WORLD_SIZE", 1), "torchrun --nproc-per-node=1")
    return HostPlace(
        host=_number(env, "GROUP_RANK"), hosts=_number(env, "GROUP_WORLD_SIZE"), address=_text(env, "MASTER_ADDR"),
        port=_number(env, "MASTER_PORT"), has_store=env.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )  # fmt: skip


def _of_slurm(env: Mapping[str, str], names_of: NamesOf | None) -> HostPlace | None:
    """Of a step, which ``srun`` starts; a batch script is on the first host alone."""
    if "SLURM_STEP_NODELIST" not in env or "SLURM_PROCID" not in env:
        return None
    hosts = _number(env, "SLURM_STEP_NUM_NODES")
    if _number(env, "SLURM_STEP_NUM_TASKS", hosts) != hosts:
        _one_each(2, "srun --ntasks-per-node=1")
    first = env.get("MASTER_ADDR")
    try:
        names = (names_of or slurm_names)(env["SLURM_STEP_NODELIST"])
    except UsageError:
        if not first:
            raise
        names = ()  # as in a container that has no scontrol: they are only for people
    if names and len(names) != hosts:
        raise UsageError(f"SLURM's list {env['SLURM_STEP_NODELIST']!r} names {len(names)} hosts, {hosts} were started",
                         hint="scontrol show hostnames writes it out")  # fmt: skip
    job, step = _number(env, "SLURM_JOB_ID"), _number(env, "SLURM_STEP_ID", 0)
    return HostPlace(
        host=_number(env, "SLURM_PROCID"), hosts=hosts, address=first or names[0], names=names,
        port=_number(env, "MASTER_PORT", _FIRST_PORT + (job * 16 + step) % _PORTS),
    )  # fmt: skip


def _of_ranks(env: Mapping[str, str]) -> HostPlace | None:
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(env):
        return None
    _one_each(_number(env, "LOCAL_WORLD_SIZE", 1), "one process on each host")
    return HostPlace(
        host=_number(env, "RANK"), hosts=_number(env, "WORLD_SIZE"), address=_text(env, "MASTER_ADDR"),
        port=_number(env, "MASTER_PORT"),
    )  # fmt: skip


def slurm_names(text: str) -> tuple[str, ...]:
    """A SLURM list of hosts written out.

    Raises:
        UsageError: SLURM does not tell.
    """
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", text], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_NAMES_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"scontrol does not write out the hosts {text!r} ({error})",
                         hint="set MASTER_ADDR to the first host's name") from error  # fmt: skip
    return tuple(done.stdout.split())


def _one_each(processes: int, how: str) -> None:
    if processes != 1:
        raise UsageError("--hosts takes one process on each host, which starts the ranks (--ranks)",
                         hint=f"start it with {how}")  # fmt: skip


def _text(env: Mapping[str, str], name: str) -> str:
    if not env.get(name):
        raise UsageError(f"{name} is not set", hint="the launcher sets it: srun or torchrun")
    return env[name]


def _number(env: Mapping[str, str], name: str, otherwise: int | None = None) -> int:
    text = env.get(name, "" if otherwise is None else str(otherwise))
    if not text.isdecimal():
        raise UsageError(f"{name} is {text!r}, which is no number", hint="the launcher sets it: srun or torchrun")
    return int(text)
