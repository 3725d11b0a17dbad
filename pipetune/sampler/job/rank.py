"""One training process and its loader workers, read repeatedly."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace

from pipetune.machine.nvml.gpu import Gpu
from pipetune.machine.parents import Parents
from pipetune.machine.proc import PROC, TICK_S, tree_pids
from pipetune.records.observation import DISK, NETWORK, PIPE, RankReading, TaskReading, TreeReading
from pipetune.sampler.job.accelerator import DeviceReader, Neighbours
from pipetune.sampler.job.computing import ComputingThreads
from pipetune.sampler.job.network import has_connections
from pipetune.sampler.job.packed_files import packed_files
from pipetune.sampler.job.roles import (
    PIN_THREAD_NAME,
    ProcessInfo,
    is_loader_thread,
    is_named_worker,
    is_spawned,
    may_be_worker,
    read_info,
)
from pipetune.sampler.job.task import MAX_KEPT, WatchedTask
from pipetune.sampler.job.thread_names import ThreadNames

#: How often new workers are searched for: workers live for an epoch, seconds at least.
_SCAN_NS = 2_000_000_000
#: The same for a job that has been watched for a minute: the end of a worker is seen at once anyway.
_LATER_SCAN_NS, _YOUNG_NS = 5_000_000_000, 60_000_000_000
#: Up to this many workers, every reading has their bytes; with more workers, two readings in four have them.
_FEW_WORKERS, _IO_TURN = 4, 4
#: Of more workers than this, every other one is read each time; the others repeat their newest reading, so that each
#: reading counts twice and covers two intervals.
_ALL_WORKERS = 8
#: The kernel sums up all threads for each reading of a process; with more than this, one reading in four does so.
_MANY_THREADS, _PROCESS_TURN = 500, 4
#: How often connections and packed files are searched for, which reads the name of every open file.
_FILES_NS = 10_000_000_000
#: Where other threads than the main one use less of a core, none of them loads.
_IDLE_FRAC = 0.02


class RankReader:
    """Follows one training process.

    Args:
        info: the process.
        gpu: its open GPU, which the caller closes.
        neighbours: finds out who else computes on a GPU that this process uses.
        parents: remembers whose child each process is.
        names: remembers the names of threads.
        others: PIDs of the job's other ranks, below which nothing is this one's.
        kept: so many workers and threads of all ranks have their files open.
        proc: where proc is mounted.
        clock: ns, like ``time.monotonic_ns``.
        boot_s: seconds since the machine was started.

    Raises:
        OSError, ValueError: the process has ended.
    """

    def __init__(
        self,
        info: ProcessInfo,
        gpu: Gpu | None,
        *,
        neighbours: Callable[[ProcessInfo, Gpu], Neighbours | None] = lambda info, gpu: None,
        parents: Parents | None = None,
        names: ThreadNames | None = None,
        others: Callable[[], Collection[int]] = lambda: (),
        kept: Callable[[], int] = lambda: 0,
        proc: str = PROC,
        clock: Callable[[], int] = time.monotonic_ns,
        boot_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self.info = info
        self._boot_s, self._others, self._kept = boot_s, others, kept
        self._proc, self._clock = proc, clock
        self._parents, self._names = parents or Parents(proc), names or ThreadNames(proc)
        self._computing = ComputingThreads(info.pid, proc)
        self.device = DeviceReader(
            info.pid, gpu, neighbours=lambda gpu: neighbours(self.info, gpu), proc=proc, clock=clock
        )
        self._process = WatchedTask(info.pid, proc=proc, io=False, waits=False)
        if self._process.start_ticks != info.start_ticks:
            self._process.close()
            raise ValueError(f"process {info.pid} is another one now")
        try:
            self._main = WatchedTask(info.pid, tid=info.pid, proc=proc)
        except (OSError, ValueError):
            self._process.close()
            raise
        self._workers: dict[int, WatchedTask] = {}
        self._threads: dict[int, WatchedTask] = {}
        self._pin: WatchedTask | None = None
        self._scan_due_ns = self._sockets_due_ns = self._packed_due_ns = self._first_ns = 0
        self._packed: str | None = None
        self._has_sockets: bool | None = None
        self._names_workers = self._had_threads = False
        self._turn = 0
        self._before_ns: int | None = None
        self._ended_ticks = 0
        self.restarts = 0
        """How often new workers were found after some had ended."""

    def read(self, t_ns: int) -> RankReading | None:
        """What happened since the last reading; ``None``: the process has ended."""
        self._turn += 1
        scan = t_ns >= self._scan_due_ns
        process = self._read_process(t_ns)
        main = self._main.read(t_ns)
        if process is None or main is None:
            return None
        if scan:
            self._first_ns = self._first_ns or t_ns
            self._scan_due_ns = t_ns + (_SCAN_NS if t_ns - self._first_ns < _YOUNG_NS else _LATER_SCAN_NS)
            self._find_workers()
        workers = self._read_tasks(self._workers, t_ns)
        kind = "process" if workers else None
        if not workers:
            workers = self._read_tasks(self._threads, t_ns)
            kind = "thread" if workers else None
        pin = None if self._pin is None else self._pin.read(t_ns)
        if self._pin is not None and pin is None:
            self._names.expect_change(self.info.pid)
        threads = () if workers else self._read_computing(t_ns, process.cpu_frac - main.cpu_frac, scan=scan)
        device = self.device.read(t_ns, search=scan)
        before_ns, self._before_ns = self._before_ns, t_ns
        return RankReading(
            t_ns=t_ns,
            interval_s=0.0 if before_ns is None else (t_ns - before_ns) / 1e9,
            pid=self.info.pid,
            rank=self.info.rank,
            main=main,
            process_cpu_frac=process.cpu_frac,
            workers=tuple(workers),
            worker_kind=kind,
            youngest_worker_s=self._youngest_s(),
            pin=pin,
            threads=threads,
            age_s=self._age_s(self.info.start_ticks),
            has_sockets=self._connections([*workers] or [main, *threads], t_ns),
            packed=self._packed_files([*workers] or [main, *threads], t_ns),
            source=device.source,
            busy_frac=device.busy_frac,
            active_frac=device.active_frac,
            idle_now=device.idle_now,
            gpu=device.gpu,
            stack=None,
            tree=self._tree(),
            busy_spans=device.spans,
            sharing=device.sharing,
        )

    def close(self) -> None:
        """Close its files, not the GPU. May be called again."""
        self.device.close()
        self._computing.close()
        for task in (self._process, self._main, self._pin, *self._workers.values(), *self._threads.values()):
            if task is not None:
                task.close()

    def _read_process(self, t_ns: int) -> TaskReading | None:
        newest = self._process.newest
        if newest is not None and self._process.stat.threads > _MANY_THREADS and self._turn % _PROCESS_TURN != 1:
            return newest
        return self._process.read(t_ns)

    def _read_tasks(self, tasks: dict[int, WatchedTask], t_ns: int) -> list[TaskReading]:
        readings = []
        # Bytes are only evidence of a diagnosis and do not change its shares: with many workers they are read in two of
        # four turns, two in a row because each turn may read only half of the workers.
        io = len(tasks) <= _FEW_WORKERS or self._turn % _IO_TURN < 2
        covers_s = 0.0 if self._before_ns is None else (t_ns - self._before_ns) / 1e9
        many = len(tasks) > _ALL_WORKERS
        for place, (number, task) in enumerate(list(tasks.items())):
            if many and place % 2 == self._turn % 2 and task.newest is not None:
                readings.append(self._marked(task, task.newest) if tasks is self._workers else task.newest)
                continue
            reading = task.read(t_ns, io=io, covers_s=covers_s)
            if reading is None:
                self._ended_ticks += task.stat.cpu_ticks if tasks is self._workers else 0
                task.close()
                del tasks[number]
                self._names.expect_change(self.info.pid)
                self._scan_due_ns = 0  # another one may have been started in its place
            else:
                readings.append(self._marked(task, reading) if tasks is self._workers else reading)
        return readings

    def _marked(self, task: WatchedTask, reading: TaskReading) -> TaskReading:
        """A worker's reading, marked as starting until torch names it: a spawned one first imports for seconds."""
        if is_named_worker(task.name):
            self._names_workers = True
            return reading
        task.read_name()
        starting = self._names_workers and not is_named_worker(task.name)
        return replace(reading, name=task.name, starting=starting)

    def _find_workers(self) -> None:
        new = []
        # Lightning's ranks are children of the first one, and only their environment's LOCAL_RANK tells them apart.
        others = set(self._others()) - {self.info.pid}
        children = {pid: [c for c in below if c not in others] for pid, below in self._parents.children().items()}
        mine = tree_pids(self.info.pid, self._proc, children=children)[1:]
        if others:
            for pid in self._workers.keys() - set(mine):  # found before the other rank was known
                self._workers.pop(pid).close()
        for pid in mine:
            if pid in self._workers:
                continue
            info = read_info(pid, self._proc)
            if info is None:
                continue
            if self._is_worker(info):
                new.append(pid)
        for pid in new:
            with contextlib.suppress(OSError, ValueError):
                self._workers[pid] = WatchedTask(pid, proc=self._proc, keep=self._may_keep)
        for pid, task in list(self._workers.items()):
            if self._names_workers and not is_named_worker(task.name):
                info = read_info(pid, self._proc)
                if info is not None and not self._is_worker(info):
                    self._workers.pop(pid).close()
        if new and self._ended_ticks:
            self.restarts += 1
        self._find_threads()

    @property
    def has_loaded(self) -> bool:
        """It has had a loader: workers that torch names, or loader threads."""
        return self._names_workers or self._had_threads

    @property
    def followed(self) -> int:
        """Number of workers and loader threads."""
        return len(self._workers) + len(self._threads)

    @property
    def _may_keep(self) -> bool:
        """Whether the files of another worker may stay open: of all ranks' those of the first ones do."""
        return max(self.followed, self._kept()) < MAX_KEPT // 4

    def _is_worker(self, info: ProcessInfo) -> bool:
        # A program that sets RANK in Python passes it to the processes that it spawns, but /proc does not show it for
        # the program itself.
        if self.info.rank not in (None, info.rank) or not may_be_worker(info, self.info):
            return False
        # Where workers have names, a copy of the training process without a name is not a worker.
        return is_named_worker(info.name) or is_spawned(info) or not self._names_workers

    def _find_threads(self) -> None:
        names = self._names.of_loader(self.info.pid)
        for number, name in names.items():
            if number in self._threads or number == self.info.pid:
                continue
            with contextlib.suppress(OSError, ValueError):
                if is_loader_thread(name):
                    self._had_threads = True
                    self._threads[number] = WatchedTask(self.info.pid, tid=number, proc=self._proc, keep=self._may_keep)
                elif name == PIN_THREAD_NAME and (self._pin is None or self._pin.number != number):
                    if self._pin is not None:
                        self._pin.close()
                    self._pin = WatchedTask(self.info.pid, tid=number, proc=self._proc, io=False)
        if self._pin is not None and self._pin.number not in names:
            self._pin.close()
            self._pin = None

    def _read_computing(self, t_ns: int, others_frac: float, *, scan: bool) -> tuple[TaskReading, ...]:
        """Threads that compute, in a job whose loader cannot be seen."""
        if scan and (self._before_ns is None or others_frac > _IDLE_FRAC):
            self._computing.find(t_ns, self._names.of(self.info.pid))
        return self._computing.read(t_ns)

    def _connections(self, asked: list[TaskReading], t_ns: int) -> bool | None:
        # Searched for only where it matters: for tasks that wait for a set of descriptors or for the network.
        if t_ns >= self._sockets_due_ns and any(task.wait in (PIPE, NETWORK) for task in asked):
            self._sockets_due_ns = t_ns + _FILES_NS
            pids = list(self._workers)[:2] or [self.info.pid]
            apart_from = self.info.pid if self._workers else None
            answers = [has_connections(pid, apart_from=apart_from, proc=self._proc) for pid in pids]
            self._has_sockets = True if True in answers else None if None in answers else False
        return self._has_sockets

    def _packed_files(self, asked: list[TaskReading], t_ns: int) -> str | None:
        # Searched for only where it matters: for tasks that wait for storage. A file may be open for a moment only.
        if t_ns >= self._packed_due_ns and any(task.wait in (DISK, NETWORK) for task in asked):
            self._packed_due_ns = t_ns + _FILES_NS
            pids = list(self._workers)[:2] or [self.info.pid]
            self._packed = next(filter(None, (packed_files(pid, self._proc) for pid in pids)), self._packed)
        return self._packed

    def _youngest_s(self) -> float | None:
        return self._age_s(max(task.start_ticks for task in self._workers.values())) if self._workers else None

    def _age_s(self, start_ticks: int) -> float | None:
        # Not /proc/uptime, which in a container can be the container's: start times count from the machine's boot.
        age_s = self._boot_s() - start_ticks * TICK_S
        return age_s if age_s >= 0 else None

    def _tree(self) -> TreeReading:
        tasks = [self._process, *self._workers.values()]
        stats = [task.stat for task in tasks]
        return TreeReading(
            processes=len(stats),
            cpu_s=(sum(stat.cpu_ticks for stat in stats) + self._ended_ticks) * TICK_S,
            run_delay_s=None,
            minor_faults=sum(stat.minor_faults for stat in stats),
            context_switches=None,
            read_bytes=None,
            rss_bytes=sum(stat.rss_bytes for stat in stats),
            in_disk_sleep=sum(stat.state == "D" for stat in stats),
        )
