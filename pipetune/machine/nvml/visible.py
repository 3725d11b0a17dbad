"""Which GPUs a process may use by its environment, as its launcher or container runtime set it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from pipetune.machine.proc import read_once

_VISIBLE = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "LOCAL_RANK")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """One GPU and the processes that compute on it."""

    index: int
    """NVML's number."""
    uuid: str | None = None
    minor: int | None = None
    """The N of its device file ``/dev/nvidiaN``, which can differ from the index."""
    slices: tuple[str, ...] = ()
    """UUIDs of the MIG slices that it is cut into."""
    pids: tuple[int, ...] | None = None
    """PIDs on the GPU and its slices as NVML reports them, ascending; ``None``: it does not list them."""


class Place(NamedTuple):
    """A GPU, or one MIG slice of it."""

    gpu: int
    slice_uuid: str | None = None


def variables_of(pid: int, proc: str) -> dict[str, str]:
    """The variables that matter, from ``/proc/PID/environ``; empty where this user may not read it."""
    entries = (read_once(f"{proc}/{pid}/environ") or b"").decode("utf-8", "replace").split("\0")
    parts = (entry.partition("=") for entry in entries)
    return {name: value for name, _, value in parts if name in _VISIBLE}


def visible_places(variables: dict[str, str], uses: Sequence[GpuUse]) -> list[Place] | None:
    """The GPUs that the environment allows the process; empty: it hides all; ``None``: it names none that exists."""
    everything = [Place(use.index) for use in uses]
    given = [_place(word, everything, uses) for word in variables.get("NVIDIA_VISIBLE_DEVICES", "").split(",")]
    # These are the host's numbers. Inside the container NVML shows only the allowed GPUs, with new numbers: so where
    # one of these does not exist, all GPUs that NVML shows are allowed.
    own = [place for place in given if place is not None]
    base = sorted(own, key=lambda place: place.gpu) if len(own) == len(given) else everything
    cuda = variables.get("CUDA_VISIBLE_DEVICES")
    if cuda in ("", "-1"):
        return []
    words = base if cuda is None else [_place(word, base, uses) for word in cuda.split(",")]
    # As CUDA does, stop at the first that does not exist.
    seen = [place for place in takewhile(bool, words) if place is not None]
    rank = variables.get("LOCAL_RANK", "")
    if len(seen) > 1 and rank.isdecimal() and int(rank) < len(seen):
        return [seen[int(rank)]]
    return seen if seen and (cuda is not None or base is not everything) else None


def _place(word: str, base: list[Place], uses: Sequence[GpuUse]) -> Place | None:
    word = word.strip()
    if word.isdecimal():
        return base[int(word)] if int(word) < len(base) else None
    known = {use.uuid: Place(use.index) for use in uses if use.uuid}
    return (known | {uuid: Place(use.index, uuid) for use in uses for uuid in use.slices}).get(word)
