"""``--loader pkg.mod:make_loader``: what the user's loader takes, found out in a child, and the options for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from pipetune.errors import UsageError
from pipetune.measure.fork_server import PACKAGE_FOLDER, RUN_MODULE
from pipetune.records.sweep import Candidate
from pipetune.registry import OWN
from pipetune.sweeping import worker_limits
from pipetune.sweeping.options import SweepOptions
from pipetune.usercode.loader_name import pack_name, parse_name
from pipetune.usercode.make_loader import ARGUMENTS, SCHEME

#: Longest time to import the user's module and make its loader (s).
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What other numbers of workers would change in a loader's batches (:mod:`pipetune.hook.guards`)."""

    iterable: bool = False
    shards: int | None = None
    own_generators: tuple[str, ...] = ()
    told_workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLoader:
    """A loader of the user's that was named."""

    packed: bytes
    """What each child reads."""
    uri: str
    """Data set name of its sweep."""
    own: Candidate | None
    """Its own settings, where it takes none; ``None``: it takes the number of workers, and none is its baseline."""
    facts: Facts = field(default_factory=Facts)
    """What other numbers of workers would change in its batches, where it takes no settings."""


def find_loader(name: str, folder: str | None = None) -> ImportedLoader:
    """The loader of a name.

    Args:
        folder: comes first on the import path; ``None``: the current one.

    Raises:
        UsageError: there is none, or it cannot be made.
    """
    parse_name(name)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", RUN_MODULE, name, str(os.getpid()), "pipetune.child.describe_loader",
             PACKAGE_FOLDER], stdin=subprocess.DEVNULL, capture_output=True, cwd=folder,
            timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except OSError as error:  # the folder that it was imported from is gone
        raise UsageError(f"--loader {name}: {folder}: {error.strerror}", hint="start a new sweep") from None
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
        packed=pack_name(name, folder or os.getcwd()), uri=f"{SCHEME}{name.partition('(')[0]}({arguments})",
        own=None if found["own"] is None else _candidate(found["own"]),
        facts=Facts() if found["own"] is None else _facts(found["own"]),
    )  # fmt: skip


def _candidate(own: dict[str, int | bool | None]) -> Candidate:
    workers = int(own["num_workers"] or 0)
    return Candidate(
        backend=OWN.name, num_workers=workers, prefetch_depth=int(own["prefetch_factor"] or 2) if workers else 0,
        batch_size=int(own["batch_size"] or 1), pin_memory=bool(own["pin_memory"]),
    )  # fmt: skip


def _facts(own: dict[str, Any]) -> Facts:
    return Facts(
        iterable=bool(own.get("iterable")), shards=own.get("shards"),
        own_generators=tuple(own.get("own_generators") or ()), told_workers=tuple(own.get("told_workers") or ()),
    )  # fmt: skip


def options_for(chosen: SweepOptions, loader: ImportedLoader) -> SweepOptions:
    """The options, with the loader in place of a data set and its own batch size where it cannot be chosen.

    Numbers of workers that would change its batches are left out, and that is among the remarks.
    """
    if loader.own is None:
        return replace(chosen, dataset=loader.uri)
    now, facts = loader.own.num_workers, loader.facts
    workers, most, remarks = chosen.workers, chosen.max_workers, []
    if facts.own_generators and now <= 1:
        most = now if most is None else min(most, now)
        remarks.append(worker_limits.of_generators(facts.own_generators))
    if facts.told_workers:
        workers = (now,)
        remarks.append(worker_limits.of_told_workers(facts.told_workers))
    elif facts.shards is not None:
        enough = max(facts.shards, now)
        most = enough if most is None else min(most, enough)
        remarks.append(worker_limits.of_shards(enough, facts.shards))
    elif facts.iterable:
        remarks.append(
            "the data set is iterable, and whether it divides its samples among workers cannot be seen: without "
            "torch.utils.data.get_worker_info each sample comes as often as there are workers, and rates count that"
        )
    return replace(
        chosen, dataset=loader.uri, batch_size=loader.own.batch_size, untuned=loader.own, workers=workers,
        max_workers=most, remarks=tuple(remarks),
    )  # fmt: skip


def resumed_options(chosen: SweepOptions, packed: bytes) -> SweepOptions:
    """The options of a sweep that goes on, with what holds for its loader whatever is asked for anew.

    Args:
        chosen: as stored, and given anew.
        packed: what each child reads: its name, and the folder that it is imported from.

    Raises:
        UsageError: it has other settings, or cannot be made.
    """
    stored = json.loads(packed)
    now = find_loader(str(stored["import"]), str(stored["cwd"]))
    if (now.uri, now.own) != (chosen.dataset, chosen.untuned):
        raise UsageError(
            f"the loader {stored['import']} has other settings now than when it was measured", hint="start a new sweep"
        )
    return options_for(chosen, now)
