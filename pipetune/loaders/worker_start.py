"""What a loader process does when it starts, so that it ends with the training process and uses one core."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch

from pipetune.loaders.worker_listener import listen_only_to
from pipetune.processes.parent_death import end_after, end_with_parent
from pipetune.processes.shm_files import announce_worker


def worker_start(start_method: str) -> Callable[[int], None]:
    """The ``worker_init_fn`` for workers of this process that are started by this method."""
    # The parent's PID is taken before the start: a worker whose parent died meanwhile would take the process that
    # adopted it for its parent, as torch's own watchdog does.
    return partial(_start, os.getpid(), start_method == "forkserver")


@contextlib.contextmanager
def fork_beside_threads() -> Iterator[None]:
    """Fork workers in a process with threads, without the warning of Python 3.12 and later that they may deadlock.

    CUDA, OpenCV and torch start threads in every training process. A worker calls none of them but through what it has
    set up itself, and pipetune has chosen to fork. Code that forks elsewhere is warned as before.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r".*multi-threaded, use of fork\(\) may lead to deadlocks", DeprecationWarning
        )
        yield


def _start(main_pid: int, by_a_server: bool, worker_id: int) -> None:
    if by_a_server:
        end_after(main_pid)  # its parent is the server, which ends later than the training process
    else:
        end_with_parent(main_pid)
    announce_worker()
    torch.set_num_threads(1)
    with contextlib.suppress(ImportError):
        import cv2

        cv2.setNumThreads(0)
    listen_only_to(main_pid)
