"""The GPUs of a job's ranks: found once per rank, opened once per GPU, with a note on how they were found."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from pipetune.machine.nvml.gpu import Gpu, NvmlUnavailable, open_gpu
from pipetune.machine.nvml.processes import (
    GpuMatch,
    are_local,
    gpus_of_process,
    list_gpu_uses,
    outer_pids,
    pids_are_foreign,
)
from pipetune.machine.nvml.visible import GpuUse
from pipetune.machine.proc import PROC, tree_pids
from pipetune.sampler.job.accelerator import Neighbours
from pipetune.sampler.job.roles import ProcessInfo, read_info

#: How a GPU was found where NVML does not list the process.
_BY_WAY = {
    "nvml, host PID": "NVML lists its PID on the host",
    "device files": "it has its device file open (NVML does not list this process)",
    "visible devices": "CUDA_VISIBLE_DEVICES and LOCAL_RANK name it (NVML does not list this process)",
    "only GPU": "it is the only one (NVML does not list this process)",
}
#: Processes are listed only this often: it takes milliseconds under the driver's locks. More often in the first
#: seconds of a process that uses some GPU.
_LIST_S, _SOON_S = 30.0, 3.0
#: CUDA opens the files of all GPUs, and some seconds later makes a context on one, by which NVML lists the process (s).
_CONTEXT_S = 35.0
#: All processes that are there when a watch begins are asked for within this time (s).
_FIRST_LOOK_S = 1.0


class RankGpus:
    """Finds and opens GPUs; :meth:`close` closes them all.

    Args:
        forced: the GPU of every rank, as the user named it; ``None``: each rank's GPU is searched for.
        proc: where proc is mounted.
        clock: s.
        note: called with a sentence for the user.
    """

    def __init__(
        self,
        *,
        forced: int | None,
        note: Callable[[str], None],
        proc: str = PROC,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._forced, self._note, self._proc, self._clock = forced, note, proc, clock
        self._open: dict[tuple[int, str | None], Gpu] = {}
        self._neighbours: dict[int, tuple[tuple[float | None, frozenset[int], str | None], Neighbours | None]] = {}
        self._uses: tuple[GpuUse, ...] = ()
        self._listed_s: float | None = None
        self._began_s: float | None = None
        self._seen_s: dict[tuple[int, int], float] = {}
        """Process, by PID and start -> when it was first seen to use some GPU."""
        self._found: dict[tuple[int, int], Gpu] = {}
        """Process -> the GPU that it is known to use."""
        self._taken: dict[tuple[int, int], Gpu] = {}
        """Process -> the GPU that was read of it last."""
        self.problem: str | None = None
        """Why NVML is unavailable; ``None``: it is not."""

    @property
    def uses(self) -> tuple[GpuUse, ...]:
        """The GPUs and their processes by NVML, at most 30 s old; empty without NVML."""
        return self._uses_within(_LIST_S)

    def _uses_within(self, age_s: float) -> tuple[GpuUse, ...]:
        now_s = self._clock()
        if self.problem is None and (self._listed_s is None or now_s - self._listed_s >= age_s):
            self._listed_s = now_s
            try:
                self._uses = list_gpu_uses()
            except NvmlUnavailable as error:
                self.problem = str(error)
        return self._uses

    def of(self, info: ProcessInfo) -> Gpu | None:
        """The open GPU of a rank; ``None``: it has none, it is not known yet, or it cannot be read.

        To be asked again and again: the answer may have been a guess.
        """
        if self._forced is not None:
            return self._opened(info, self._forced, None, "--gpu")
        process = (info.pid, info.start_ticks)
        if process in self._found:
            return self._found[process]
        uses = self.uses  # which may take seconds, once
        now_s = self._clock()
        self._began_s = now_s if self._began_s is None else self._began_s
        match = gpus_of_process(info.pid, uses, proc=self._proc)
        if not match.indices and not match.unknown:
            return self._matched(info, match, uses)
        seen_s = self._seen_s.setdefault(process, now_s)
        settling = now_s - seen_s < _CONTEXT_S
        if uses and settling:
            uses = self._uses_within(_SOON_S)
            match = gpus_of_process(info.pid, uses, proc=self._proc)
            # Of one that used it before the watch began NVML would tell by now, if it does at all.
            if _may_be_another(match) and seen_s - self._began_s > _FIRST_LOOK_S:
                return None
        gpu = self._matched(info, match, uses)
        if gpu is None:
            return None
        if not _may_be_another(match):
            if self._taken.get(process, gpu) is not gpu:
                self._note(f"process {info.pid} uses GPU {match.indices[0]}, as NVML shows by now: that one is read")
            # A rank that comes to CUDA before it has chosen its device is on the first GPU for some seconds.
            if not settling:
                self._found[process] = gpu
        self._taken[process] = gpu
        return gpu

    def _matched(self, info: ProcessInfo, match: GpuMatch, uses: tuple[GpuUse, ...]) -> Gpu | None:
        if not match.indices or match.way is None:
            if uses and pids_are_foreign(uses, self._proc):
                self._note(
                    "NVML reports the host's PIDs, which mean nothing in this container; if the job uses a GPU, name "
                    "it with --gpu N"
                )
            elif uses and match.unknown:
                self._note(
                    f"which GPU process {info.pid} uses is unknown: NVML does not list it, and neither its open files "
                    "nor its environment name one; name it with --gpu N"
                )
            return None
        if match.uncertain:
            # The figures of another GPU would be worse than none.
            self._note(_uncertain(info, match, uses))
            return None
        if len(match.indices) > 1:
            self._note(_ambiguous(info, match))
        return self._opened(info, match.indices[0], match.slice_uuid, match.way)

    def neighbours(self, info: ProcessInfo, gpu: Gpu, ranks: Collection[int] = ()) -> Neighbours | None:
        """Who computes on a rank's GPU, at most 30 s old; ``None``: nobody else, or NVML does not list them.

        Args:
            ranks: processes of the job's ranks, which are no strangers to it.
        """
        uses = self.uses
        key = (self._listed_s, frozenset(ranks), gpu.uuid)
        found = self._neighbours.get(info.pid)
        if found is None or found[0] != key:
            found = (key, self._find_neighbours(info, gpu, uses, ranks))
            self._neighbours[info.pid] = found
        return found[1]

    def _find_neighbours(
        self, info: ProcessInfo, gpu: Gpu, uses: tuple[GpuUse, ...], ranks: Collection[int]
    ) -> Neighbours | None:
        # On a GPU that is cut into slices the lists of the slices are one, and a slice is nobody else's.
        pids = next((use.pids for use in uses if use.uuid == gpu.uuid and not use.slices), None)
        if not pids:
            return None
        tree: set[int] = set()
        for pid in {info.pid, *ranks}:
            tree |= set(tree_pids(pid, self._proc)) | outer_pids(pid, self._proc)
        own = frozenset(pid for pid in pids if pid in tree)
        if not own and are_local(pids, self._proc):
            own = frozenset({info.pid})  # NVML lists it once it has a context there: what is done till then is others'
        if len(own.union(pids)) < 2:
            return None
        return Neighbours(own, {pid: self._called(pid, known=bool(own)) for pid in pids if pid not in own})

    def _called(self, pid: int, *, known: bool) -> str:
        # Where the numbers are the host's, a process of that number in here is another one.
        there = read_info(pid, self._proc) if known else None
        return f"process {pid}" if there is None else f"{there.title} ({pid})"

    def names(self) -> list[str]:
        """Names of the GPUs that are open."""
        return [gpu.name for gpu in self._open.values()]

    def close(self) -> None:
        """Close all GPUs. May be called again."""
        for gpu in self._open.values():
            gpu.close()
        self._open.clear()

    def _opened(self, info: ProcessInfo, index: int, slice_uuid: str | None, way: str) -> Gpu | None:
        key = (index, slice_uuid)
        if key not in self._open:
            try:
                self._open[key] = open_gpu(index=index, uuid=slice_uuid)
            except NvmlUnavailable as error:
                self._note(f"GPU {index} cannot be read: {error}")
                return None
        if way not in ("nvml", "--gpu"):
            self._note(f"process {info.pid} is taken to use GPU {index}: {_BY_WAY[way]}")
        return self._open[key]


def _may_be_another(match: GpuMatch) -> bool:
    """Whether NVML may still say which GPU it is."""
    return match.unknown or (match.way in ("device files", "visible devices") and len(match.indices) > 1)


def _uncertain(info: ProcessInfo, match: GpuMatch, uses: tuple[GpuUse, ...]) -> str:
    listed = ", ".join(f"{use.index}: {use.name}" for use in uses if use.index in match.indices)
    return (
        f"which GPU process {info.pid} uses is unknown: CUDA counts the fastest one first, NVML along the bus "
        f"({listed}); name it with --gpu N, or start the job with CUDA_DEVICE_ORDER=PCI_BUS_ID"
    )


def _ambiguous(info: ProcessInfo, match: GpuMatch) -> str:
    listed = ", ".join(map(str, match.indices))
    return (
        f"process {info.pid} has the GPUs {listed} open; GPU {match.indices[0]} is read ({match.way}); name another "
        "one with --gpu N"
    )
