"""What ``pipetune run --tuned`` needs of a run: the settings of one loader, and the checks before they are applied."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipetune.candidates import allocators
from pipetune.candidates.settings import SIMD, python_start
from pipetune.errors import PipetuneError, UsageError
from pipetune.machine.host import describe_host
from pipetune.measure.script.pil import pil_for_hook
from pipetune.measure.script.protocol import SITE, TUNED, VARIABLE
from pipetune.records.script import ScriptLoader, ScriptSummary
from pipetune.records.sweep import Candidate
from pipetune.runs.load import load
from pipetune.store.files import OWN_FILE, os_errors_as, replace_file
from pipetune.sweeping.stored import sweep_result

#: The profile in the run folder.
FILE = "tuned.json"
#: The same for a machine on which nothing is applied.
NOT_HERE_FILE = "tuned-not-here.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedScript:
    """A script's recommendation, ready to be applied."""

    path: Path
    """The run folder."""
    summary: ScriptSummary
    loader: ScriptLoader
    candidate: Candidate
    refused: str | None
    """Why it is not applied on this machine; ``None``: it is."""


def read_tuned(run: Path) -> TunedScript:
    """The recommendation of a script's sweep.

    Raises:
        UsageError: the run is of no script, recommends nothing, or its loader cannot be recognised.
    """
    stored = load(run)
    result = sweep_result(stored)
    summary = result.script
    if summary is None:
        raise UsageError(
            f"{run} is no sweep of a script",
            hint="train with pipetune.open_loader, or sweep one: pipetune sweep -- CMD",
        )
    if summary.loader is None or summary.loader.identity is None:
        raise UsageError(f"{run}: the script's loader was made where it cannot be recognised again",
                         hint="set it by hand: pipetune report shows the settings")  # fmt: skip
    if result.recommended is None or result.recommended.measurement is None:
        raise UsageError(f"{run} recommends nothing: it did not come to its end", hint=f"pipetune sweep --resume {run}")
    cores, now = result.usable_cores, describe_host().cores_usable
    refused = None if abs(cores - now) < 0.01 else f"it was measured with {cores:g} usable cores, and there are {now:g}"
    return TunedScript(
        path=run, summary=summary, loader=summary.loader, candidate=result.recommended.candidate, refused=refused
    )


def profile_of(tuned: TunedScript) -> dict[str, Any]:
    """What the hook reads."""
    candidate, loader = tuned.candidate, tuned.loader
    settings: dict[str, Any] = {
        "num_workers": candidate.num_workers,
        "prefetch_factor": candidate.prefetch_depth if candidate.num_workers else None,
        "pin_memory": candidate.pin_memory,
    }  # fmt: skip
    if candidate.num_workers and candidate.in_order != loader.settings.get("in_order", True):
        settings["in_order"] = candidate.in_order
    if candidate.worker_cores != "inherited":
        settings["worker_cores"] = candidate.worker_cores
    if candidate.opencv_threads is not None:
        settings["opencv_threads"] = candidate.opencv_threads
    if candidate.decoder not in ("own", SIMD):
        settings["decoder"] = candidate.decoder
    unsaid = python_start(loader.python)
    if candidate.num_workers and candidate.start_method != (loader.settings.get("start_method") or unsaid):
        settings["start_method"] = candidate.start_method
    if candidate.keep_workers:
        settings["persistent_workers"] = True
    settings = {name: value for name, value in settings.items() if name not in loader.fixed}
    return {
        "loaders": [{"identity": asdict(loader.identity) if loader.identity else {}, "settings": settings,
                     "alone_there": loader.alone_there}],
        "checks": {"torch": loader.torch, "cores": loader.cores[1] or None, "ranks": loader.ranks,
                   "refused": tuned.refused},
        **({"pil": pil_for_hook()} if candidate.decoder == SIMD else {}),
    }  # fmt: skip


def environment_of(tuned: TunedScript) -> dict[str, str]:
    """The environment in which the script trains with what was found; writes the profile into the run folder.

    Into a temporary folder where that may not be written. It stays there: the script's processes read it when they
    start, and this one becomes the script.

    Raises:
        PipetuneError: the disk refuses both.
    """
    profile = [json.dumps(profile_of(tuned), indent=1).encode()]
    # Trainings that use one run folder at once differ in nothing but whether this machine is refused.
    place = tuned.path.resolve() / (FILE if tuned.refused is None else NOT_HERE_FILE)
    try:
        replace_file(place, profile, mode=OWN_FILE)
    except PipetuneError:
        with os_errors_as("create", Path(tempfile.gettempdir())):
            place = Path(tempfile.mkdtemp(prefix="pipetune-tuned-")) / FILE
        replace_file(place, profile, mode=OWN_FILE)
    already = os.environ.get("PYTHONPATH")
    variables = allocators.environment_of(tuned.candidate.allocator, os.environ)
    return {
        **os.environ, **variables, VARIABLE: f"{TUNED}:{place}",
        "PYTHONPATH": SITE if not already else f"{SITE}{os.pathsep}{already}",
    }  # fmt: skip
