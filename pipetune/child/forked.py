"""What a process that was forked, and runs a program of its own, does at its beginning and at its end."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn


def draw_seeds() -> None:
    """Seed anew, as new processes are: other random numbers than the next fork's. Python's own generator does so."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()  # of the CPU; torch.seed() would ask the devices


def end_process(status: int) -> NoReturn:
    """End at once, with what was printed written: the rest of the program belongs to the process it was forked from."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a candidate may have closed it
            stream.flush()
    os._exit(status & 0xFF)
