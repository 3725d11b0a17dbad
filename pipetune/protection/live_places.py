"""Paths in ordinary folders that another process listens at: a copy-on-write layer over them would cut them off."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

#: More sockets than that are not passed through; a machine has a few dozen.
MAX_SOCKETS = 500
#: Where NVIDIA's Multi-Process Service has its pipes, unless the variable names another folder.
_MPS_VARIABLE, _MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"


def live_places() -> Iterator[Path]:
    """Sockets that are bound to a path, and the folder of the CUDA Multi-Process Service."""
    mps = Path(os.environ.get(_MPS_VARIABLE) or _MPS_FOLDER)
    if mps.is_dir():
        yield mps
    for path in parse_sockets(_read("/proc/net/unix"))[:MAX_SOCKETS]:
        try:
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                yield Path(path)
        except OSError:
            continue


def parse_sockets(text: str) -> list[str]:
    """Absolute paths in ``/proc/net/unix``, each once, in their order; abstract names are left out."""
    paths: dict[str, None] = {}
    for line in text.splitlines()[1:]:
        # Num RefCount Protocol Flags Type St Inode Path, the first with a colon behind it:
        # 00000000: 00000002 00000000 00010000 0001 01 20643 /run/munge/munge.socket.2
        words = line.split(None, 7)
        if len(words) > 7 and words[7].startswith("/"):
            paths[words[7]] = None
    return list(paths)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
