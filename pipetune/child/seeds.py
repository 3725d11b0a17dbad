"""Random numbers of a process that was forked: other ones than those of the next fork."""

from __future__ import annotations

import sys


def draw_seeds() -> None:
    """Seed anew, as new processes are. Python's own generator does so by itself."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()  # of the CPU; torch.seed() would ask the devices
