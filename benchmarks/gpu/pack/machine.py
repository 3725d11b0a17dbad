"""The machine that the parts are for: a rented GPU of the kind that CONTRIBUTING describes."""

from __future__ import annotations

PYTHON = (3, 12)
CACHE_TAG = f"cpython-{PYTHON[0]}{PYTHON[1]}"
PROCESSOR = "x86_64"
#: Of an H100 and an H200: sm_90.
ARCHITECTURE = 90
#: A command takes a tree and what is carried beside it only up to this size.
MAX_CARRIED_MIB = 64
#: glibc 2.39 and what it runs, for pip: https://peps.python.org/pep-0600/
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
    "linux_x86_64",
)
