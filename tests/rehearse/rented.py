"""A machine as it is lent: a copy of the tree, the parts that were carried, and nothing of this user's."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import ROOT

#: Longest time over its --total that a call may take (s): entering the parts, and the start of Python.
_OVER_S = 60.0


@dataclass(frozen=True, slots=True)
class Rented:
    """One machine."""

    folder: Path
    python: Path

    @classmethod
    def start(cls, folder: Path, python: Path) -> Rented:
        """An empty machine that gets the tree."""
        for name in ("home", "out", "tmp"):
            (folder / name).mkdir(parents=True)
        copy_tree(folder / "tree")
        return cls(folder, python)

    @property
    def tree(self) -> Path:
        """The copy of the checkout."""
        return self.folder / "tree"

    def carry(self, part: str) -> None:
        """Carry a part to it; one that came earlier stays."""
        shutil.copytree(ROOT / part, self.tree / part)

    def call(self, *words: str, total_s: float, environment: Mapping[str, str] | None = None) -> int:
        """Enter the parts and run lease.sh, as CONTRIBUTING says; its exit code."""
        command = f". .gpu1/enter.sh && bash benchmarks/gpu/lease.sh {shlex.join(words)} --total {total_s:.0f}"
        return self.run(command, total_s + _OVER_S, environment)

    def run(self, command: str, limit_s: float, environment: Mapping[str, str] | None = None) -> int:
        """Run a line of bash in the tree; its exit code."""
        print(f"\n$ {command}", flush=True)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.tree,
            env={**self.environment(), **(environment or {})},
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=limit_s,
        )
        return done.returncode

    def environment(self) -> dict[str, str]:
        """Nothing is inherited but where programs are."""
        places = {"HOME": "home", "OUT": "out", "TMPDIR": "tmp"}
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "PYTHON": str(self.python),
            **{name: str(self.folder / place) for name, place in places.items()},
        }

    def read_results(self) -> dict[str, dict[str, Any]]:
        """File name without its ending -> what a stage's try found."""
        files = (self.tree / "benchmarks" / "results" / "gpu").glob("*/*.json")
        return {file.stem: json.loads(file.read_text()) for file in files}

    def archives(self) -> list[Path]:
        """What comes back."""
        return sorted((self.folder / "out").glob("*.tar.xz"))


def copy_tree(target: Path) -> None:
    """Copy what travels with a call: tracked files, and others that git does not ignore; no results of a lease."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in _wanted(listed.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


def _wanted(names: Iterable[str]) -> list[str]:
    results = "benchmarks/results/gpu/"
    return [name for name in set(names) if name and not name.startswith(results) and (ROOT / name).is_file()]
