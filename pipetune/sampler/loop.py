"""The sampler: one thread that reads the machine, a process tree and a GPU at a steady pace, and keeps the readings.

Why the pace can slow down: a sampler must not become the load that it measures. With 16 loader workers a reading takes
half to three quarters of a millisecond of processor time (``benchmarks/overhead/sampler_overhead.py``), but the
kernel's part of it grows with the number of cores and of processes. So the thread measures its own cost, reads less
often where a reading is costly, and stays below ``max_core_frac`` of one core on any machine. Each reading carries its
true interval.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from pipetune.machine.proc import PROC
from pipetune.records.observation import GpuReading, Reading, timeline_reading
from pipetune.sampler.machine_load import MachineReader
from pipetune.sampler.pace import PacedLoop
from pipetune.sampler.tree import TreeReader

if TYPE_CHECKING:
    from pipetune.machine.nvml.gpu import Gpu

#: The cost is judged by the mean of this many readings: among them are the costlier ones of each half second.
_COST_READINGS = 20


class Observer:
    """Reads everything once per call. No thread, no pace: :class:`Sampler` adds those.

    Args:
        pid: root of the process tree to follow; ``None``: none.
        gpu: read each time until it is lost; the caller closes it.
        cores: see :class:`pipetune.sampler.machine_load.MachineReader`.
        clock: ns, like ``time.monotonic_ns``.
        proc: where proc is mounted.
    """

    def __init__(
        self,
        pid: int | None,
        gpu: Gpu | None,
        cores: frozenset[int] | None = None,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        proc: str = PROC,
    ) -> None:
        self._clock, self._gpu = clock, gpu
        self._machine = MachineReader(cores, proc)
        self._tree = None if pid is None else TreeReader(pid, proc=proc, clock=clock)
        self._before_ns = clock()
        self._spent_s = time.thread_time()

    def read(self) -> Reading:
        """Everything since the last reading; the first one has nothing to compare with.

        ``tick_cost_s`` is the CPU time of the calling thread since the last reading, waiting and callbacks included. So
        over all readings it adds up to the whole cost of the sampler's thread after the first one.
        """
        t_ns = self._clock()
        machine = self._machine.read(t_ns)
        tree = None if self._tree is None else self._tree.read()
        gpu = self._read_gpu()
        spent_s, before_ns = time.thread_time(), self._before_ns
        reading = timeline_reading(
            machine,
            t_ns=t_ns,
            interval_s=(t_ns - before_ns) / 1e9,
            tree=tree,
            gpu=gpu,
            tick_cost_s=spent_s - self._spent_s,
        )
        self._before_ns, self._spent_s = t_ns, spent_s
        return reading

    def close(self) -> None:
        """Closes its files; not the GPU. May be called again."""
        self._machine.close()
        if self._tree is not None:
            self._tree.close()

    def _read_gpu(self) -> GpuReading | None:
        if self._gpu is None or self._gpu.lost:
            return None
        reading = self._gpu.read()
        return None if self._gpu.lost else reading


class Sampler:
    """Takes a reading every ``interval_s`` in its own thread, from :meth:`start` to :meth:`stop`.

    Args:
        pid: root of the process tree to follow; ``None``: none. It may not exist yet, or end meanwhile.
        gpu: an open GPU; closing it is the caller's task, after :meth:`stop`.
        cores: see :class:`pipetune.sampler.machine_load.MachineReader`.
        interval_s: time between two readings (s); one that comes too late is skipped, never made up for.
        on_reading: called in the sampler's thread with each reading; keep it short.
        clock: ns, like ``time.monotonic_ns``.
        proc: where proc is mounted.
        max_core_frac: readings become rarer where they would cost more of one core than this.
        keep: only this many of the newest readings are kept; ``None``: all (about 0.7 KB each).
    """

    def __init__(
        self,
        pid: int | None,
        gpu: Gpu | None,
        cores: frozenset[int] | None = None,
        interval_s: float = 0.1,
        on_reading: Callable[[Reading], None] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        proc: str = PROC,
        max_core_frac: float = 0.01,
        keep: int | None = None,
    ) -> None:
        self._watched = (pid, gpu, cores)
        self._clock, self._proc = clock, proc
        self._on_reading = on_reading
        self._readings: deque[Reading] = deque(maxlen=keep)
        self._costs_s: deque[float] = deque(maxlen=_COST_READINGS)
        self._compares = False
        self._loop = PacedLoop(lambda: throttled_interval_s(interval_s, self._costs_s, max_core_frac), clock)
        self._thread: threading.Thread | None = None
        self.cpu_s = 0.0
        """Processor time of the sampler's thread so far, everything included."""

    @property
    def error(self) -> Exception | None:
        """The newest exception of a reading or of ``on_reading``. After five in a row the thread has ended."""
        return self._loop.error

    @property
    def readings(self) -> list[Reading]:
        """The readings so far, oldest first; a copy."""
        return list(self._readings)

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: it was started before; a sampler runs once.
        """
        if self._thread is not None:
            raise RuntimeError("a Sampler runs once; make a new one")
        self._thread = threading.Thread(target=self._run, name="pipetune-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it: no callback and no read of the GPU follows. May be called again."""
        self._loop.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        # Whatever is raised in here is recorded: a thread that dies unseen is worse than any error.
        try:
            pid, gpu, cores = self._watched
            observer = Observer(pid, gpu, cores, clock=self._clock, proc=self._proc)
        except Exception as error:
            self._loop.error = error
            return
        try:
            self._loop.run(lambda: self._read(observer))
        finally:
            observer.close()
            self.cpu_s = time.thread_time()

    def _read(self, observer: Observer) -> bool:
        try:
            reading = observer.read()
            # The first reading only opens the files; the later ones are differences to the one before.
            if self._compares:
                self._costs_s.append(reading.tick_cost_s)
                self._readings.append(reading)
                if self._on_reading is not None:
                    self._on_reading(reading)
            self._compares = True
        finally:
            self.cpu_s = time.thread_time()
        return True


def throttled_interval_s(interval_s: float, costs_s: deque[float], max_core_frac: float) -> float:
    """The interval asked for, or longer, so that readings of this cost take at most ``max_core_frac`` of a core."""
    if not costs_s:
        return interval_s
    return max(interval_s, sum(costs_s) / len(costs_s) / max_core_frac)
