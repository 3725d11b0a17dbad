"""A training job as watch sees one, without torch: it starts in a fifth of a second. Run as a program of its own.

Usage: ``watched_job.py KIND`` with KIND one of

- ``decode``: one loader worker, named as torch names it, that keeps a core busy; the accelerator is fed a twentieth
  of what it takes,
- ``healthy``: an accelerator that never waits,
- ``plain``: a loader worker that keeps a core busy, and no accelerator.

A line ``ready`` on standard output says that it has begun to train.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from types import SimpleNamespace

from pipetune.accelerator.emulated import EmulatedAccelerator
from pipetune.accelerator.timeline import TimelineWriter
from pipetune.processes.parent_death import die_with_parent

_PR_SET_NAME = 15
#: CPU time that a worker puts into a batch, and what the accelerator needs for one (s).
_DECODE_S, _STEP_S = 0.04, 0.002
#: So long that the moments in which a busy machine does not let the job run are a small part of it (s).
_HEALTHY_STEP_S = 0.1


def worker(write_fd: int, parent: int) -> None:
    die_with_parent(parent)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"pt_data_worker")
    while True:
        until_s = time.thread_time() + _DECODE_S
        while time.thread_time() < until_s:
            pass
        os.write(write_fd, b"x")


def main(kind: str) -> None:
    accelerator = None
    if kind != "plain":
        step_s = _HEALTHY_STEP_S if kind == "healthy" else _STEP_S
        accelerator = EmulatedAccelerator(1 / step_s, timeline=TimelineWriter())
    read_fd, write_fd = os.pipe()
    own = os.getpid()
    if kind != "healthy" and os.fork() == 0:
        worker(write_fd, own)
    batch = SimpleNamespace(images=[0])
    print("ready", flush=True)
    while True:
        if kind != "healthy":
            select.select([read_fd], [], [])  # as multiprocessing waits for a message
            os.read(read_fd, 1)
        if accelerator is not None:
            accelerator.submit(batch)
            accelerator.finished()


if __name__ == "__main__":
    main(sys.argv[1])
