"""Which processes use a GPU, and which GPU a process uses: by NVML's lists, and by ``/proc``.

NVML reports the host's PIDs, because the driver knows no PID namespaces. In a container they are of no use, and the
process's open files and environment are read instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipetune.machine.nvml.calls import Calls
from pipetune.machine.nvml.gpu import NvmlUnavailable, for_each_gpu, text_of
from pipetune.machine.nvml.visible import GpuUse, Place, variables_of, visible_places
from pipetune.machine.proc import PROC, read_once

Way = Literal["nvml", "nvml, host PID", "device files", "visible devices", "only GPU"]

_LISTS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
#: The kernel's PID_MAX_LIMIT on 64 bits.
_LARGEST_PID = 4_194_304
_DEVICE = "/dev/nvidia"
#: The one device file of WSL2, for all GPUs of the Windows machine.
_WSL_DEVICE = "/dev/dxg"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMatch:
    """The GPUs of one process, as :func:`gpus_of_process` found them."""

    indices: tuple[int, ...] = ()
    """NVML's numbers. Several: it uses all of them, or which one is unknown."""
    way: Way | None = None
    """How they were found; ``None``: none was."""
    slice_uuid: str | None = None
    """The MIG slice that its environment names, for ``open_gpu``: a GPU cut into slices has no utilisation itself."""
    uncertain: bool = False
    """Any of ``indices`` may be meant: they are of several kinds, and CUDA counts those in an order of its own."""
    unknown: bool = False
    """It has a file of the driver open, and nothing says which GPU it uses."""


def list_gpu_uses() -> tuple[GpuUse, ...]:
    """All GPUs that NVML shows to this process. ``pids`` is ``None`` for one that is lost or does not list processes.

    Starts NVML and lists processes, which takes milliseconds under the driver's locks and delays the running job: to be
    called at the start, and then every 30 s at most.

    Raises:
        NvmlUnavailable: no binding, library, driver or permission.
    """
    return for_each_gpu(_describe_use)


def visible_gpu_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the GPUs that a process with this environment may use; empty where NVML is unavailable."""
    try:
        uses = list_gpu_uses()
    except NvmlUnavailable:
        return ()
    variables = {name: value for name, value in environment.items() if name != "LOCAL_RANK"}  # all ranks' GPUs
    places = visible_places(variables, uses).places
    names = {use.index: use.name or "a GPU without a name" for use in uses}
    return tuple(names.values()) if places is None else tuple(names[place.gpu] for place in places)


def gpus_of_process(pid: int, uses: Sequence[GpuUse], *, proc: str = PROC) -> GpuMatch:
    """The GPUs that a process uses. Never raises; none for a process that has ended or uses none.

    The first of these that gives an answer is taken; none of them where its open files show no file of the driver
    (NVIDIA's, or WSL2's ``/dev/dxg``):

    - ``nvml``: NVML lists this PID. Where that is so on several GPUs and ``LOCAL_RANK`` counts to one of them, that is
      the one: a rank that calls CUDA before it has set its device leaves a context on the first GPU as well.
    - ``nvml, host PID``: NVML lists a PID that the process has in an outer namespace (the ``NSpid`` line of its
      ``status``). That line begins at the namespace of the ``proc`` mount, so a container's own has no outer PID.
    - ``device files``: it has ``/dev/nvidiaN`` open. CUDA usually opens those of all GPUs before it picks one, so if
      there are several its environment is asked first.
    - ``visible devices``: ``CUDA_VISIBLE_DEVICES`` within ``NVIDIA_VISIBLE_DEVICES``, and of several the one that
      ``LOCAL_RANK`` counts to. UUIDs (``GPU-…``, also abbreviated; ``MIG-…``) are certain. Numbers are CUDA's, which
      are NVML's with ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` or where all GPUs are of one kind; otherwise the answer is
      uncertain. An empty value or -1 hides them all. What the program set itself after it was started is not seen.
    - ``only GPU``: it has something like ``/dev/nvidiactl`` open, and there is one GPU.

    Args:
        pid: as ``proc`` numbers it.
        uses: from :func:`list_gpu_uses`.
        proc: where proc is mounted.
    """
    opened = _opened(pid, proc)
    if opened is not None and not opened:
        return GpuMatch()
    places, uncertain = visible_places(variables_of(pid, proc), uses)
    indices, way = _indices(pid, uses, opened or frozenset(), places, proc)
    if way in ("nvml", "nvml, host PID") and len(indices) > 1 and not uncertain and places and len(places) == 1:
        indices = tuple(index for index in indices if index == places[0].gpu) or indices
    named = places[0].slice_uuid if places and len(places) == 1 and places[0].gpu in indices else None
    guessed = way in ("device files", "visible devices") and len(indices) > 1
    return GpuMatch(
        indices=indices, way=way, slice_uuid=named, uncertain=uncertain and guessed,
        unknown=not indices and bool(opened) and places != [],
    )  # fmt: skip


def pids_are_foreign(uses: Sequence[GpuUse], proc: str = PROC) -> bool:
    """Whether NVML lists processes of which none is in ``proc``: then it reports the host's PIDs.

    A listed PID is taken as one of ``proc`` if that process has a file of NVIDIA's driver open, or if its files are not
    readable. The result is also true where other users' processes are hidden, and when the only listed process has just
    ended.
    """
    pids = {pid for use in uses for pid in use.pids or ()}
    return bool(pids) and all(_opened(pid, proc) == frozenset() for pid in pids)


def are_local(pids: Sequence[int], proc: str = PROC) -> bool:
    """Whether each of these PIDs of NVML's is one of ``proc``: a process with a file of NVIDIA's driver open there.

    Of another user's process, whose files are not readable, it is assumed.
    """
    return all(_opened(pid, proc) != frozenset() for pid in pids)


def _describe_use(library: Any, index: int) -> GpuUse:
    calls = Calls(library)
    handle = calls.ask("nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return GpuUse(index=index)
    uuid, name = (text_of(calls.ask(f"nvmlDeviceGet{what}", handle)) for what in ("UUID", "Name"))
    # Zero where MIG is off. A cut GPU lists its processes as a whole only to the privileged, each slice its own to all.
    count = calls.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    parts = [calls.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number) for number in range(count)]
    slices = {text_of(calls.ask("nvmlDeviceGetUUID", part)): part for part in parts if part is not None}
    lists = [pids for one in (handle, *slices.values()) if (pids := _pids(library, one)) is not None]
    return GpuUse(
        index=index,
        uuid=uuid,
        name=name,
        minor=calls.ask("nvmlDeviceGetMinorNumber", handle),
        slices=tuple(name for name in slices if name),
        pids=tuple(sorted(set().union(*lists))) if lists else None,
    )


def _pids(library: Any, handle: Any) -> set[int] | None:
    calls = Calls(library)
    possible: set[int] | None = None
    for name in _LISTS:
        listed = calls.ask(name, handle)
        if listed is not None:
            pids = {int(process.pid) for process in listed}
            possible = {pid for pid in pids if 0 < pid <= _LARGEST_PID}
            if possible == pids:
                return pids
        # Drivers before 510 lack _v3, and those from 535.43 to 535.86 fill it with records larger than the binding's:
        # some PIDs are invalid then, as XuehaiPan/nvitop issue 75 shows. Their _v2 is correct.
    return possible


def _indices(
    pid: int, uses: Sequence[GpuUse], opened: frozenset[str], places: list[Place] | None, proc: str
) -> tuple[tuple[int, ...], Way | None]:
    if listed := _listing({pid}, uses):
        return listed, "nvml"
    if listed := _listing(outer_pids(pid, proc), uses):
        return listed, "nvml, host PID"
    if places == []:
        return (), None
    files = tuple(use.index for use in uses if str(use.minor) in opened)
    named = tuple(sorted({place.gpu for place in places or () if not files or place.gpu in files}))
    if named and len(files) != 1 and named != files:
        return named, "visible devices"
    if files:
        return files, "device files"
    return ((uses[0].index,), "only GPU") if opened and len(uses) == 1 else ((), None)


def _listing(pids: set[int], uses: Sequence[GpuUse]) -> tuple[int, ...]:
    return tuple(use.index for use in uses if not pids.isdisjoint(use.pids or ()))


def _opened(pid: int, proc: str) -> frozenset[str] | None:
    """The driver's files that it has open, e.g. ``{"0", "ctl", "-uvm"}``, of which only the numbers are GPUs.

    Empty when it has ended; ``None``: its files are not readable for this user.
    """
    folder = f"{proc}/{pid}/fd"
    found = set()
    try:
        for name in os.listdir(folder):
            try:
                target = os.readlink(f"{folder}/{name}")
            except FileNotFoundError:  # closed meanwhile
                continue
            if target.startswith(_DEVICE):
                found.add(target[len(_DEVICE) :].removesuffix(" (deleted)"))
            elif target == _WSL_DEVICE:
                found.add(target)
    except (FileNotFoundError, ProcessLookupError):
        return frozenset()
    except OSError:
        return None
    return frozenset(found)


def outer_pids(pid: int, proc: str) -> set[int]:
    """The numbers that a process has in outer PID namespaces; none where ``proc`` is its own namespace's."""
    for line in (read_once(f"{proc}/{pid}/status") or b"").split(b"\n"):
        if line.startswith(b"NSpid:"):
            numbers = [int(number) for number in line.split()[1:]]
            return set(numbers[: numbers.index(pid)]) if pid in numbers else set()
    return set()
