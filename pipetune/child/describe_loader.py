"""The program that imports a loader of the user's by its name and says what it takes; one JSON line on standard output.

In a child, because importing it imports torch, and runs code of the user's.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from pipetune.errors import PipetuneError
from pipetune.hook.guards import is_iterable_set, own_generators, shards_of, told_workers
from pipetune.processes.parent_death import die_with_parent
from pipetune.usercode.imported import VIEW_ARGUMENTS, import_loader
from pipetune.usercode.make_loader import accepted


def main() -> int:
    """Describe the loader that the first argument names; the second one is our parent's PID."""
    name, parent = sys.argv[-2:]
    die_with_parent(int(parent))
    report = os.dup(1)
    os.dup2(2, 1)  # what the user's modules print is no answer
    try:
        make_loader = import_loader(name, os.getcwd())
        own = getattr(make_loader, "own_loader", None)
        found: dict[str, Any] = {"arguments": sorted(accepted(make_loader)), "own": None}
        if own is not None:
            workers = int(own.num_workers)
            found = {
                "arguments": list(VIEW_ARGUMENTS),
                "own": {"num_workers": workers, "prefetch_factor": own.prefetch_factor if workers else None,
                        "pin_memory": bool(own.pin_memory), "batch_size": _batch_size(own), **_facts(own)},
            }  # fmt: skip
    except PipetuneError as error:
        found = {"error": error.message, "hint": error.hint}
    except Exception as error:  # whatever the user's code raises
        found = {"error": f"--loader {name}: {type(error).__name__}: {error}", "hint": "import it yourself to see why"}
    with contextlib.suppress(OSError):
        os.write(report, json.dumps(found).encode() + b"\n")
    return 0


def _facts(loader: Any) -> dict[str, Any]:
    """What other numbers of workers would change in its batches."""
    iterable = is_iterable_set(loader)
    return {
        "iterable": iterable, "own_generators": own_generators(loader.dataset),
        "shards": shards_of(loader.dataset) if iterable else None,
        "told_workers": told_workers(loader.dataset, int(loader.num_workers)) if iterable else [],
    }  # fmt: skip


def _batch_size(loader: object) -> int | None:
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)
