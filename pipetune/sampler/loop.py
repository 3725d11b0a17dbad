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
from collections.abc import Callable, Collection
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
#: A reading takes milliseconds; one that has not ended after this time hangs, as in a driver that does not answer (s).
STOP_S = 10.0
#: What to say where :meth:`Sampler.stop` returns ``False``.
LEFT_BEHIND = (
    f"a reading has not ended within {STOP_S:.0f} s and was left behind: the GPU's driver may not answer (try "
    "nvidia-smi)"
)


class Observer:
    """Reads everything once per call. No thread, no pace: :class:`Sampler` adds those.

    Args:
        pid: root of the process tree to follow; ``None``: none.
        gpu: read each time until it is lost; the caller closes it. Another may be set later.
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
        self._clock, self.gpu = clock, gpu
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
        if self.gpu is None or self.gpu.lost:
            return None
        reading = self.gpu.read()
        return None if self.gpu.lost else reading


class Sampler:
    """Takes a reading every ``interval_s`` in its own thread, from :meth:`start` to :meth:`stop`.

    Args:
        pid: root of the process tree to follow; ``None``: none. It may not exist yet, or end meanwhile.
        gpu: an open GPU. The thread alone asks NVML: it reads the GPU once more at its end, for the samples that NVML
            tells late, and closes it.
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
        self._watched, self._gpu = (pid, cores), gpu
        self._clock, self._proc = clock, proc
        self._on_reading = on_reading
        self._readings: deque[Reading] = deque(maxlen=keep)
        self._costs_s: deque[float] = deque(maxlen=_COST_READINGS)
        self._compares = self._left_behind = False
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
            RuntimeError: it was started before (a sampler runs once), or the system has no thread to give.
        """
        if self._thread is not None:
            raise RuntimeError("a Sampler runs once; make a new one")
        self._thread = threading.Thread(target=self._run, name="pipetune-sampler", daemon=True)
        self._thread.start()

    def use(self, gpu: Gpu) -> None:
        """Read this open GPU from now on. For a sampler that has none, before its end."""
        self._gpu = gpu

    def stop(self, limit_s: float = STOP_S) -> bool:
        """End the thread, which closes the GPU, and wait for it: no callback follows. May be called again.

        Returns:
            ``False``: it hangs in a reading and is left behind; it is not waited for again. Then the GPU must not be
            touched: the thread may still be in one of its calls.
        """
        self._loop.stop()
        thread = self._thread
        if thread is threading.current_thread():
            return True
        if thread is not None and thread.ident is not None:
            thread.join(0 if self._left_behind else limit_s)
            self._left_behind = thread.is_alive()
        if self._gpu is not None and not self._left_behind:
            self._gpu.close()  # where no thread was started, or it had ended before it was given one
        return not self._left_behind

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
            pid, cores = self._watched
            observer = Observer(pid, self._gpu, cores, clock=self._clock, proc=self._proc)
        except Exception as error:
            self._loop.error = error
            return
        try:
            self._loop.run(lambda: self._read(observer))
            if self._gpu is not None:
                self._gpu.read()
                self._gpu.close()
        finally:
            observer.close()
            self.cpu_s = time.thread_time()

    def _read(self, observer: Observer) -> bool:
        try:
            observer.gpu = self._gpu
            reading = observer.read()
            if self._left_behind:
                return False  # nobody waits for it any more
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


def stop_all(samplers: Collection[Sampler], limit_s: float = STOP_S) -> list[Sampler]:
    """Stop several within one limit for all; returns those that are left behind: see :meth:`Sampler.stop`."""
    deadline_s = time.monotonic() + limit_s
    for sampler in samplers:
        sampler._loop.stop()
    return [sampler for sampler in samplers if not sampler.stop(max(0.0, deadline_s - time.monotonic()))]


def throttled_interval_s(interval_s: float, costs_s: deque[float], max_core_frac: float) -> float:
    """The interval asked for, or longer, so that readings of this cost take at most ``max_core_frac`` of a core."""
    if not costs_s:
        return interval_s
    return max(interval_s, sum(costs_s) / len(costs_s) / max_core_frac)
