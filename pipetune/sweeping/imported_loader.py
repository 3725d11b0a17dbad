"""``--loader pkg.mod:make_loader``: what the user's loader takes, found out in a child, and the options for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace

from pipetune.errors import UsageError
from pipetune.measure.fork_server import PACKAGE_FOLDER, RUN_MODULE
from pipetune.records.sweep import Candidate
from pipetune.registry import OWN
from pipetune.sweeping.options import SweepOptions
from pipetune.usercode.loader_name import pack_name, parse_name
from pipetune.usercode.make_loader import ARGUMENTS, SCHEME

#: Longest time to import the user's module and make its loader (s).
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLoader:
    """A loader of the user's that was named."""

    packed: bytes
    """What each child reads."""
    uri: str
    """Data set name of its sweep."""
    own: Candidate | None
    """Its own settings, where it takes none; ``None``: it takes the number of workers, and none is its baseline."""


def find_loader(name: str) -> ImportedLoader:
    """The loader of a name.

    Raises:
        UsageError: there is none, or it cannot be made.
    """
    parse_name(name)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", RUN_MODULE, name, str(os.getpid()), "pipetune.child.describe_loader",
             PACKAGE_FOLDER], stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--loader {name}: it was not made within {_LIMIT_S:.0f} s", hint="see why in Python"
        ) from None
    lines = done.stdout.decode(errors="replace").splitlines()
    if not lines:
        last = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(
            f"--loader {name}: the process that makes it ended with {done.returncode}: {(last or ['no word'])[-1]}",
            hint="import it yourself to see why",
        )
    found = json.loads(lines[-1])
    if "error" in found:
        raise UsageError(found["error"], hint=found["hint"])
    arguments = ", ".join(name for name in ARGUMENTS if name in found["arguments"])
    return ImportedLoader(
        packed=pack_name(name, os.getcwd()), uri=f"{SCHEME}{name.partition('(')[0]}({arguments})",
        own=None if found["own"] is None else _candidate(found["own"]),
    )  # fmt: skip


def _candidate(own: dict[str, int | bool | None]) -> Candidate:
    workers = int(own["num_workers"] or 0)
    return Candidate(
        backend=OWN.name, num_workers=workers, prefetch_depth=int(own["prefetch_factor"] or 2) if workers else 0,
        batch_size=int(own["batch_size"] or 1), pin_memory=bool(own["pin_memory"]),
    )  # fmt: skip


def options_for(chosen: SweepOptions, loader: ImportedLoader) -> SweepOptions:
    """The options, with the loader in place of a data set and its own batch size where it cannot be chosen."""
    size = chosen.batch_size if loader.own is None else loader.own.batch_size
    return replace(chosen, dataset=loader.uri, batch_size=size, untuned=loader.own)
