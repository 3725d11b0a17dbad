"""The tests of the stand-in CUDA runtime with the image's Python and torch, from the packed parts: make rehearse.

Exit code: pytest's; 0 where there is no such environment, which is said. The slow ones only with ``--slow``.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.pack.parts import NAMES
from tests.rehearse.environment import PLACE, CannotRehearse, make_environment, pack
from tests.rehearse.rented import Rented

#: One of them starts workers in ways that Python 3.12 warns of.
_TESTED = ("tests/cuda", "tests/unit/loaders")
_LIMIT_S = 1800.0


def main() -> int:
    """Run them; returns the exit code."""
    try:
        python = make_environment(PLACE)
        if not pack():
            return 1
    except CannotRehearse as reason:
        print(f"not rehearsed: {reason}", flush=True)
        return 0
    chosen = [] if "--slow" in sys.argv[1:] else ["-m", "not slow"]
    with tempfile.TemporaryDirectory(prefix="rehearse-") as folder:
        machine = Rented.start(Path(folder), python)
        for name in NAMES:
            machine.carry(name)
        words = [str(python), "-m", "pytest", *_TESTED, *chosen, "-q", "-n", "2", "--dist", "loadfile"]
        return machine.run(f". .gpu1/enter.sh && {shlex.join(words)}", _LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
