"""What a loader worker of the user's does at its start besides what the user's code does: cores, OpenCV's threads.

A class and no closure, because ``spawn`` and ``forkserver`` pickle it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any


class WorkerStart:
    """Takes the place of ``worker_init_fn``.

    Args:
        then: the script's own function; ``None``: it has none.
        cores: what the worker may run on; ``None``: what it inherits.
        opencv_threads: ``cv2.setNumThreads``; ``None``: as it is.
    """

    def __init__(self, then: Any, cores: tuple[int, ...] | None, opencv_threads: int | None) -> None:
        self.then, self.cores, self.opencv_threads = then, cores, opencv_threads

    def __call__(self, worker: int) -> Any:
        """In the worker, with its number."""
        if self.cores:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self.cores)
        if self.opencv_threads is not None and "cv2" in sys.modules:
            sys.modules["cv2"].setNumThreads(self.opencv_threads)
        return None if self.then is None else self.then(worker)


def worker_start(then: Any, settings: Any, all_cores: tuple[int, ...] | None) -> Any:
    """The function with which workers start, where the settings ask for one; else the script's own.

    Args:
        settings: ``worker_cores`` and ``opencv_threads`` of a candidate.
        all_cores: that the process began with.
    """
    cores = all_cores if settings.get("worker_cores") == "all" else None
    threads = settings.get("opencv_threads")
    return then if cores is None and threads is None else WorkerStart(then, cores, threads)
