"""The thread that makes the readings, and the lock between it and the thread that shows them.

A driver that hangs must not hang the command: NVML is asked in this thread alone, and the main thread waits for nothing
longer than a moment while the job runs, so that Ctrl-C and the job's end are seen at once.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

from pipetune.sampler.pace import PacedLoop
from pipetune.sampler.stacks.dump import LIMIT_S as STACKS_S
from pipetune.watching.watcher import Tick, Watcher

#: Longer than the stacks of one process may take, or a slow py-spy would cost the last window (s).
_STOP_S = STACKS_S + 1.0


class WatcherThread:
    """Ticks of a watcher at a steady pace, in a thread of its own, until the job or the thread ends.

    Args:
        watcher: used by this thread and, inside :meth:`held`, by others.
        interval_s: time between two readings (s); one that comes too late is skipped.
    """

    def __init__(self, watcher: Watcher, interval_s: float) -> None:
        self.ticks: queue.SimpleQueue[Tick] = queue.SimpleQueue()
        self._watcher = watcher
        self._lock = threading.Lock()
        self._loop = PacedLoop(lambda: interval_s)
        self._thread = threading.Thread(target=self._loop.run, args=(self._step,), name="pipetune-watch", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self, limit_s: float = _STOP_S) -> bool:
        """End the thread; ``False``: it hangs in a call and is left behind. May be called again."""
        self._loop.stop()
        if self._thread.ident is not None:
            self._thread.join(limit_s)
        return not self._thread.is_alive()

    def wait(self, limit_s: float) -> None:
        """Sleep until the thread has ended by itself, at most this long (s)."""
        self._thread.join(limit_s)

    @property
    def running(self) -> bool:
        """The thread has not ended."""
        return self._thread.is_alive()

    @property
    def error(self) -> Exception | None:
        """Why the thread has ended by itself; ``None``: it runs, was stopped, or the job has ended."""
        return self._loop.error if self._loop.given_up else None

    @contextlib.contextmanager
    def held(self, limit_s: float = 0.2) -> Iterator[Watcher | None]:
        """The watcher between two of its readings; ``None``: a reading takes longer than ``limit_s``."""
        if not self._lock.acquire(timeout=limit_s):
            yield None
            return
        try:
            yield self._watcher
        finally:
            self._lock.release()

    def _step(self) -> bool:
        with self._lock:
            tick = self._watcher.tick()
        self.ticks.put(tick)
        return not self._watcher.ended
