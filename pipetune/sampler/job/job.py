"""A whole job: its ranks, the machine and its control groups, read together."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection

from pipetune.machine.host import within_quota
from pipetune.machine.nvml.gpu import Gpu
from pipetune.machine.parents import Parents
from pipetune.machine.proc import PROC, own_cpu_s, read_process_stat
from pipetune.records.observation import JobReading, MachineReading, RankReading
from pipetune.sampler.job.accelerator import Neighbours
from pipetune.sampler.job.control_group import GroupReader
from pipetune.sampler.job.find_ranks import find_ranks
from pipetune.sampler.job.network import NetworkReader
from pipetune.sampler.job.rank import RankReader
from pipetune.sampler.job.roles import ProcessInfo
from pipetune.sampler.job.thread_names import ThreadNames
from pipetune.sampler.machine_load import MachineReader

#: Ranks are searched for this often: first often, because a job starts one process after the other; later rarely,
#: because only the end of a rank changes it, which is seen at once.
_RANKS_NS, _LATER_RANKS_NS, _YOUNG_NS = 3_000_000_000, 30_000_000_000, 60_000_000_000
#: Takes a rank; returns the GPU that it uses, or ``None``. Called for each rank whenever ranks are searched for.
GpuFinder = Callable[[ProcessInfo], Gpu | None]
#: Takes a rank, its GPU and the processes of all ranks; returns who computes on it.
NeighbourFinder = Callable[[ProcessInfo, Gpu, Collection[int]], Neighbours | None]


class JobReader:
    """Follows the job below one process.

    Args:
        root: the process that the user named, a launcher or the training process itself.
        gpu_of: finds and opens a rank's GPU, which the caller closes.
        neighbours: finds the other processes on it.
        proc: where proc is mounted.
        clock: ns, like ``time.monotonic_ns``.
    """

    def __init__(
        self, root: int, gpu_of: GpuFinder, *, neighbours: NeighbourFinder = lambda info, gpu, ranks: None,
        proc: str = PROC, clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:  # fmt: skip
        self._neighbours = neighbours
        self._root, self._gpu_of, self._proc, self._clock = root, gpu_of, proc, clock
        self._parents, self._names = Parents(proc), ThreadNames(proc)
        stat = read_process_stat(root, proc)
        self._root_start_ticks = None if stat is None else stat.start_ticks
        self.ranks: dict[tuple[int, int], RankReader] = {}
        self._affinity = cores = _affinity(root)
        self._group = GroupReader(root, proc=proc)
        # The pressure of the job's own group, where there is one, says more than the machine's.
        self._machine = MachineReader(cores, proc, pressure=not self._group.has_pressure)
        self._network = NetworkReader(root, proc)
        self._cores = within_quota(len(cores) if cores else os.cpu_count() or 1, self._group.quota_cores)
        self._ranks_due_ns = self._first_ns = 0
        self._cost_s = own_cpu_s()

    @property
    def ended(self) -> bool:
        """Whether the named process and all ranks have ended."""
        return not self.ranks and not self._root_is_alive()

    def read(self) -> JobReading:
        """Readings of the machine and of all ranks, since the last call."""
        t_ns = self._clock()
        if t_ns >= self._ranks_due_ns:
            self._first_ns = self._first_ns or t_ns
            self._ranks_due_ns = t_ns + (_RANKS_NS if t_ns - self._first_ns < _YOUNG_NS else _LATER_RANKS_NS)
            self._find_ranks()
        readings: list[RankReading] = []
        for key, rank in list(self.ranks.items()):
            reading = rank.read(t_ns)
            if reading is None:
                self._drop(key)
                # Another one may be started in its place, and shows what it is a little later.
                self._ranks_due_ns, self._first_ns = 0, t_ns
            else:
                readings.append(reading)
        return JobReading(machine=self._read_machine(t_ns), ranks=tuple(readings))

    def close(self) -> None:
        """Close its files, not the GPUs. May be called again."""
        for key in list(self.ranks):
            self._drop(key)
        for reader in (self._machine, self._group, self._network):
            reader.close()

    def _find_ranks(self) -> None:
        found = {(info.pid, info.start_ticks): info for info in self._listed()}
        for key in list(self.ranks):
            if key not in found:
                self._drop(key)
        for key, info in found.items():
            rank = self.ranks.get(key)
            if rank is None:
                with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                    self.ranks[key] = RankReader(
                        info,
                        self._gpu_of(info),
                        neighbours=lambda info, gpu: self._neighbours(info, gpu, [pid for pid, _ in self.ranks]),
                        parents=self._parents,
                        names=self._names,
                        others=lambda: [pid for pid, _ in self.ranks],
                        kept=lambda: sum(rank.followed for rank in self.ranks.values()),
                        proc=self._proc,
                        clock=self._clock,
                    )
                continue
            rank.info = info  # a shell becomes another program with ``exec``
            # A job opens its GPU some time after it was started, and what was found may have been a guess.
            gpu = self._gpu_of(info)
            if gpu is not None:
                rank.device.use(gpu)
        self._follow_affinity()

    def _follow_affinity(self) -> None:
        """Go by the cores that the ranks may use: a launcher, taskset or the program itself may have set them since."""
        sets = [found for pid, _ in self.ranks if (found := _affinity(pid))]
        cores = frozenset().union(*sets)
        if not cores or cores == self._affinity:
            return
        self._affinity = cores
        self._machine.close()
        self._machine = MachineReader(cores, self._proc, pressure=not self._group.has_pressure)
        self._cores = within_quota(len(cores), self._group.quota_cores)

    def _listed(self) -> list[ProcessInfo]:
        if self._root_is_alive():
            return self._with_known(find_ranks(self._root, self._proc, parents=self._parents, names=self._names))
        # The launcher has ended before its ranks: those that are known are followed to their end.
        return [rank.info for rank in self.ranks.values()]

    def _with_known(self, found: list[ProcessInfo]) -> list[ProcessInfo]:
        """Those found, and ranks that are known by the loader that they had, which is gone between two epochs."""
        if any(info.rank is not None for info in found):  # their environment says which they are
            return found
        above = set().union(*(self._ancestors(info.pid) for info in found))
        pids = {info.pid for info in found}
        known = [
            rank.info
            for (pid, _), rank in self.ranks.items()
            if pid not in pids and pid not in above and rank.has_loaded and rank.info.rank is None
        ]
        above = set().union(*(self._ancestors(info.pid) for info in known))
        return [*(info for info in found if info.pid not in above), *known]

    def _ancestors(self, pid: int) -> set[int]:
        seen: set[int] = set()
        while (stat := read_process_stat(pid, self._proc)) is not None and stat.parent not in seen:
            pid = stat.parent
            seen.add(pid)
        return seen

    def _root_is_alive(self) -> bool:
        stat = read_process_stat(self._root, self._proc)
        return stat is not None and stat.start_ticks == self._root_start_ticks and not stat.has_ended

    def _drop(self, key: tuple[int, int]) -> None:
        self.ranks.pop(key).close()

    def _read_machine(self, t_ns: int) -> MachineReading:
        load, group = self._machine.read(t_ns), self._group.read(t_ns)
        own = self._group.has_pressure
        pressure = group.pressure if own else load
        before_s, now_s = self._cost_s, own_cpu_s()
        # Once a job that this process has started is waited for, its CPU time counts among that of ended children.
        self._cost_s = now_s if self._root_is_alive() else before_s
        known = pressure.psi_io_some_pct is not None
        return MachineReading(
            t_ns=t_ns,
            interval_s=load.interval_s,
            cpu_busy_pct=load.cpu_busy_pct,
            cpu_idle_pct=load.cpu_idle_pct,
            cpu_iowait_pct=load.cpu_iowait_pct,
            psi_cpu_some_pct=pressure.psi_cpu_some_pct,
            psi_io_some_pct=pressure.psi_io_some_pct,
            psi_memory_some_pct=pressure.psi_memory_some_pct,
            psi_scope=None if not known else "cgroup" if own else "machine",
            cores=self._cores,
            quota_cores=self._group.quota_cores,
            throttled_frac=group.throttled_frac,
            net_rx_bytes=self._network.read(),
            cost_s=self._cost_s - before_s,
            counted_cores=self._machine.counted,
        )


def _affinity(pid: int) -> frozenset[int] | None:
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return None
