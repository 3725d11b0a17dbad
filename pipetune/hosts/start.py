"""What all hosts do alike: say who they are, take their part of the images, and begin together."""

from __future__ import annotations

import importlib.metadata
import platform
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipetune.datasets.index import ImageSet, write_index
from pipetune.datasets.rank_slice import slice_of
from pipetune.hosts.store import HostStore
from pipetune.measure.conditions import Conditions
from pipetune.version import __version__


def about_this_host() -> dict[str, Any]:
    """Its name, and the versions that have to be the same everywhere."""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = "not installed"
    return {"host": socket.gethostname(), "pipetune": __version__, "torch": torch, "python": platform.python_version()}


@dataclass(frozen=True, slots=True)
class Part:
    """One host's part of the images, with its index in a file."""

    index_path: str
    files: Sequence[str]

    @staticmethod
    def of(images: ImageSet, host: int, hosts: int, seed: int, folder: Path) -> Part:
        """Every so many of the shuffled images, as for a rank; the index is written into ``folder``."""
        part = slice_of(images, host, hosts, seed)
        path = folder / "index.json"
        write_index(str(path), part)
        return Part(str(path), part.files)

    def with_it(self, conditions: Conditions) -> Conditions:
        """Conditions of these images."""
        workload = replace(conditions.workload, index_path=self.index_path)
        return replace(conditions, paths=self.files, workload=workload)


class Start:
    """The moment at which all hosts begin a task: when each has brought its page cache to its state, which takes hosts
    different times."""

    def __init__(self, store: HostStore, number: int, hosts: int, look: Callable[[], None]) -> None:
        """That of one task.

        Args:
            number: of the task.
            look: is called each second that is waited.
        """
        self._store, self._number, self._hosts, self._look = store, number, hosts, look
        self.began_ns: int | None = None
        """Monotonic ns of this host; ``None``: not yet."""

    def __call__(self) -> int:
        """This host is ready: wait for all others, once; returns :attr:`began_ns`."""
        if self.began_ns is None:
            if self._store.count(f"ready/{self._number}") == self._hosts:
                self._store.put(f"go/{self._number}", True)
            while not self._store.wait(f"go/{self._number}"):
                self._look()
            self.began_ns = time.monotonic_ns()
        return self.began_ns
