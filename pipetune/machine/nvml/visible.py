"""Which GPUs a process may use by its environment, as its launcher or container runtime set it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from pipetune.machine.proc import read_once

_VISIBLE = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LOCAL_RANK")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """One GPU and the processes that compute on it."""

    index: int
    """NVML's number."""
    uuid: str | None = None
    name: str | None = None
    """Its product's name."""
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


class Visible(NamedTuple):
    """What the environment says of the GPUs that a process may use."""

    places: list[Place] | None
    """None where it hides all; ``None``: it names none."""
    uncertain: bool = False
    """CUDA may count these GPUs in another order than NVML, so which of them the process uses is unknown."""


def variables_of(pid: int, proc: str) -> dict[str, str]:
    """The variables that matter, from ``/proc/PID/environ``; empty where this user may not read it."""
    entries = (read_once(f"{proc}/{pid}/environ") or b"").decode("utf-8", "replace").split("\0")
    parts = (entry.partition("=") for entry in entries)
    return {name: value for name, _, value in parts if name in _VISIBLE}


def visible_places(variables: dict[str, str], uses: Sequence[GpuUse]) -> Visible:
    """The GPUs that the environment allows the process."""
    everything = [Place(use.index) for use in uses]
    given = [_place(word, everything, uses) for word in variables.get("NVIDIA_VISIBLE_DEVICES", "").split(",")]
    # These are the host's numbers. Inside the container NVML shows only the allowed GPUs, with new numbers: so where
    # one of these does not exist, all GPUs that NVML shows are allowed.
    own = [place for place in given if place is not None]
    base = sorted(own, key=lambda place: place.gpu) if len(own) == len(given) else everything
    cuda = variables.get("CUDA_VISIBLE_DEVICES")
    if cuda in ("", "-1"):
        return Visible([])
    words = base if cuda is None else [_place(word, base, uses) for word in cuda.split(",")]
    # As CUDA does, stop at the first that does not exist.
    seen = [place for place in takewhile(bool, words) if place is not None]
    if _is_uncertain(variables, base, uses):
        return Visible(base if seen else None, uncertain=True)
    rank = variables.get("LOCAL_RANK", "")
    if len(seen) > 1 and rank.isdecimal() and int(rank) < len(seen):
        return Visible([seen[int(rank)]])
    return Visible(seen if seen and (cuda is not None or base is not everything) else None)


def _is_uncertain(variables: dict[str, str], base: Sequence[Place], uses: Sequence[GpuUse]) -> bool:
    """CUDA's numbers decide, and may count these GPUs in another order than NVML.

    CUDA begins with the fastest and leaves the rest "unspecified" (CUDA C++ Programming Guide, CUDA_DEVICE_ORDER); of
    GPUs of one kind it keeps the order of the bus.
    """
    names = {use.name for use in uses if use.index in {place.gpu for place in base}}
    numbers = (word.strip().isdecimal() for word in variables.get("CUDA_VISIBLE_DEVICES", "0").split(","))
    return len(names) > 1 and variables.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and any(numbers)


def _place(word: str, base: list[Place], uses: Sequence[GpuUse]) -> Place | None:
    word = word.strip()
    if word.isdecimal():
        return base[int(word)] if int(word) < len(base) else None
    known = {use.uuid: Place(use.index) for use in uses if use.uuid}
    slices = {uuid: Place(use.index, uuid) for use in uses for uuid in use.slices}
    if place := (known | slices).get(word):
        return place
    if word.startswith("MIG-GPU-"):  # MIG-<the GPU's UUID>/<GPU instance>/<compute instance>, before driver 470
        return known.get(word.removeprefix("MIG-").partition("/")[0])
    # CUDA takes "enough digits from the beginning of the GPU UUID to uniquely identify that GPU".
    alike = [place for uuid, place in known.items() if uuid.startswith(word)] if word.startswith("GPU-") else []
    return alike[0] if len(alike) == 1 and word != "GPU-" else None
