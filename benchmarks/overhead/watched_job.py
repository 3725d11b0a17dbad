"""The job of ``watch_overhead.py``: loader workers by torch's name and an emulated accelerator. A program of its own.

Usage: ``watched_job.py KIND WORKERS``; the first line of its output is the file that holds the count of steps.

- ``fed``: the workers decode in bursts as the accelerator asks for batches, and the accelerator never waits,
- ``starved``: the same workers, a much faster accelerator, and at least one core left idle,
- ``saturated``: the workers decode without a pause on all cores,
- ``threaded``: as ``fed``, and the training process has 3,000 threads more that sleep.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
import time
from multiprocessing import Pipe, connection
from types import SimpleNamespace

from benchmarks.overhead.decoding import decode_once, photograph
from pipetune.accelerator.emulated import EmulatedAccelerator
from pipetune.accelerator.timeline import TimelineWriter
from pipetune.processes.parent_death import die_with_parent

#: Time that a worker sleeps between two images (s).
PAUSE_S = {"fed": 0.08, "starved": 0.15, "saturated": 0.0, "threaded": 0.08}
#: The accelerator's rate (samples/s).
RATE = {"fed": 40.0, "starved": 1000.0, "saturated": 1e6, "threaded": 40.0}
#: Threads of the training process that sleep.
THREADS = {"threaded": 3000}


def work(kind: str, sender: connection.Connection, parent: int) -> None:
    die_with_parent(parent)
    ctypes.CDLL(None).prctl(15, b"pt_data_worker")
    file = photograph()
    while True:
        decode_once(file)
        sender.send(1)
        time.sleep(PAUSE_S[kind])


def main(kind: str, workers: int) -> None:
    counter = os.memfd_create("steps")
    os.ftruncate(counter, 8)
    print(f"/proc/{os.getpid()}/fd/{counter}", flush=True)
    receivers: list[connection.Connection] = []
    for _ in range(workers):
        receiver, sender = Pipe(duplex=False)
        own = os.getpid()
        if os.fork() == 0:
            work(kind, sender, own)
        sender.close()
        receivers.append(receiver)
    threading.stack_size(128 << 10)
    for _ in range(THREADS.get(kind, 0)):  # after the workers, which are forks
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    accelerator = EmulatedAccelerator(RATE[kind], timeline=TimelineWriter())
    steps = 0
    while True:
        ready = connection.wait(receivers)
        for receiver in (receiver for receiver in receivers if receiver in ready):
            receiver.recv()
            accelerator.submit(SimpleNamespace(images=[0]))
            accelerator.finished()
            steps += 1
            os.pwrite(counter, struct.pack("<Q", steps), 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
