"""Processes that decode a JPEG again and again, as loader workers do: the load under which overhead is measured."""

from __future__ import annotations

import ctypes
import io
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawArray
from typing import Any


def photograph() -> io.BytesIO:
    """A JPEG that takes about as long to decode as a photograph of its size (5 ms)."""
    from PIL import Image

    file = io.BytesIO()
    # Plain noise is the costliest JPEG there is; blurred to half the size and back it decodes like a photograph.
    noise = Image.effect_noise((320, 240), 60).resize((640, 480), Image.Resampling.BILINEAR)
    Image.merge("RGB", (noise, noise.rotate(90), noise.rotate(180))).save(file, "JPEG", quality=90)
    return file


def decode_once(file: io.BytesIO) -> None:
    from PIL import Image

    file.seek(0)
    Image.open(file).load()


@contextmanager
def decoders(count: int, *, pause_s: float) -> Iterator[Any]:
    """``count`` processes that decode, each with a pause between two images; the array in which they count images."""
    context = multiprocessing.get_context("spawn")
    done = RawArray(ctypes.c_uint64, count)
    workers = [context.Process(target=_decode, args=(done, slot, pause_s), daemon=True) for slot in range(count)]
    for worker in workers:
        worker.start()
    try:
        while not all(done):
            time.sleep(0.05)
        yield done
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


def _decode(done: Any, slot: int, pause_s: float) -> None:
    file = photograph()
    while True:
        decode_once(file)
        done[slot] += 1
        if pause_s:
            time.sleep(pause_s)
