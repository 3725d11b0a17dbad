"""The thread that looks, and the lock between it and whoever shows what it saw.

A driver that hangs must not hang the command: NVML is asked in this thread alone, and the main thread waits for nothing
longer than a moment, so that Ctrl-C and the job's end are seen at once.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator

from pipetune.sampler.loop import next_due_ns
from pipetune.watching.watcher import Tick, Watcher

#: So many looks in a row that failed are a fault that will not pass.
_MAX_FAILURES = 5


class Looking:
    """Ticks of a watcher at a steady pace, in a thread of its own.

    Args:
        watcher: used by this thread and, inside :meth:`held`, by others.
        interval_s: time between two looks; one that comes too late is left out.
    """

    def __init__(self, watcher: Watcher, interval_s: float) -> None:
        self.ticks: queue.SimpleQueue[Tick] = queue.SimpleQueue()
        self.error: Exception | None = None
        """Why the thread has ended by itself."""
        self._watcher, self._interval_s = watcher, interval_s
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipetune-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, limit_s: float = 2.0) -> bool:
        """End; ``False`` when the thread hangs in a call and has to be left behind."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(limit_s)
        return not self._thread.is_alive()

    def wait(self, limit_s: float) -> None:
        """Until the thread has ended by itself, at most so long."""
        self._thread.join(limit_s)

    @property
    def running(self) -> bool:
        """The thread has not ended by itself."""
        return self._thread.is_alive()

    @contextlib.contextmanager
    def held(self, limit_s: float = 0.2) -> Iterator[Watcher | None]:
        """The watcher between two of its looks; ``None``: a look takes longer than that."""
        if not self._lock.acquire(timeout=limit_s):
            yield None
            return
        try:
            yield self._watcher
        finally:
            self._lock.release()

    def _run(self) -> None:
        failures = 0
        due_ns = time.monotonic_ns()
        while not self._stopping.is_set():
            try:
                with self._lock:
                    tick = self._watcher.tick()
                self.ticks.put(tick)
                failures = 0
                if self._watcher.ended:
                    return
            except Exception as error:
                failures += 1
                if failures >= _MAX_FAILURES:
                    self.error = error
                    return
            due_ns = next_due_ns(due_ns, time.monotonic_ns(), self._interval_s)
            self._stopping.wait(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
