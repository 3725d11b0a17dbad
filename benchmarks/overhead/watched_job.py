"""The job of ``watch_overhead.py``: loader workers by torch's name and an emulated accelerator. A program of its own.

Usage: ``watched_job.py KIND WORKERS``; the first line of its output is the file that holds the count of steps.

- ``fed``: the workers decode in bursts as the accelerator asks for batches, which it is never kept waiting for,
- ``starved``: the same workers, an accelerator that takes ten times as much, and a core and more left idle,
- ``saturated``: the workers decode without a pause on all cores.
"""

from __future__ import annotations

import ctypes
import io
import os
import struct
import sys
import time
from multiprocessing import Pipe, connection
from types import SimpleNamespace

from pipetune.accelerator.emulated import EmulatedAccelerator
from pipetune.accelerator.timeline import TimelineWriter
from pipetune.processes.parent_death import die_with_parent

#: A worker decodes one image and sleeps so long (s).
PAUSE_S = {"fed": 0.08, "starved": 0.15, "saturated": 0.0}
RATE = {"fed": 40.0, "starved": 1000.0, "saturated": 1e6}


def photograph() -> io.BytesIO:
    from PIL import Image

    file = io.BytesIO()
    noise = Image.effect_noise((320, 240), 60).resize((640, 480), Image.Resampling.BILINEAR)
    Image.merge("RGB", (noise, noise.rotate(90), noise.rotate(180))).save(file, "JPEG", quality=90)
    return file


def work(kind: str, sender: connection.Connection, parent: int) -> None:
    from PIL import Image

    die_with_parent(parent)
    ctypes.CDLL(None).prctl(15, b"pt_data_worker")
    file = photograph()
    while True:
        file.seek(0)
        Image.open(file).load()
        sender.send(1)
        time.sleep(PAUSE_S[kind])


def main(kind: str, workers: int) -> None:
    counter = os.memfd_create("steps")
    os.ftruncate(counter, 8)
    print(f"/proc/{os.getpid()}/fd/{counter}", flush=True)
    receivers = []
    for _ in range(workers):
        receiver, sender = Pipe(duplex=False)
        own = os.getpid()
        if os.fork() == 0:
            work(kind, sender, own)
        sender.close()
        receivers.append(receiver)
    accelerator = EmulatedAccelerator(RATE[kind], timeline=TimelineWriter())
    steps = 0
    while True:
        for receiver in connection.wait(receivers):
            receiver.recv()  # type: ignore[union-attr]
            accelerator.submit(SimpleNamespace(images=[0]))
            accelerator.finished()
            steps += 1
            os.pwrite(counter, struct.pack("<Q", steps), 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
