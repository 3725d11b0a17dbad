"""``--resume DIR``: what of an interrupted sweep holds, and whether this is still the same sweep."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipetune.datasets.synthetic_uri import SCHEME
from pipetune.errors import UsageError
from pipetune.records.script import ScriptLoader
from pipetune.records.sweep import AcceleratorSpec, Candidate, Goal, Outcome, from_dict, to_dict
from pipetune.runs.earlier import options_today
from pipetune.store.files import RUN_FILE
from pipetune.store.folder import StoredRun, load_run
from pipetune.sweeping.options import AUTO_RANKS, FREE_OPTIONS, SweepOptions
from pipetune.sweeping.setup import Prepared
from pipetune.usercode import make_loader

#: Facts of the host without which rates cannot be compared. Not its name: a container's changes with every start.
_HOST_FACTS = ("cpu_model", "cores_usable", "python")
#: Options that change neither what is searched nor what for.
_NO_OTHER_SEARCH = {"budget_s", "timeout_s", "blocks", "ceilings"}
#: Facts of a script that trains, which may run under another Python than pipetune does.
_SCRIPT_FACTS = {
    "python": "Python", "torch": "torch", "ranks": "number of ranks", "dataset": "data set",
    "batch_size": "batch size",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """An earlier sweep that is resumed."""

    path: Path
    run: dict[str, Any]
    before: SweepOptions
    """The options that the sweep was started with."""
    chosen: SweepOptions
    """The same with those that were given anew."""
    outcomes: tuple[Outcome, ...]
    """Those that were measured; failures are tried again, because their cause may have been mended."""
    spent_s: float
    """Time that all outcomes took, the failures among them."""
    problems: tuple[str, ...]


def read_resumed(path: Path, given: Mapping[str, Any]) -> Resumed:
    """Options and outcomes of the sweep in a run folder.

    Args:
        path: its folder.
        given: the options that were given with ``--resume``, by field of :class:`SweepOptions`.

    Raises:
        UsageError: the folder holds no sweep, or an option was given with which the outcomes could not be compared.
    """
    stored = load_run(path)
    before = chosen = _options(path, stored)
    if not chosen.command and not chosen.dataset.startswith((SCHEME, make_loader.SCHEME)):
        chosen = replace(chosen, dataset=os.path.join(stored.run.get("cwd", ""), os.path.expanduser(chosen.dataset)))
    # What "auto" came to then; what it comes to now is compared with that later.
    then = {**to_dict(chosen), "ranks": stored.run.get("workload", {}).get("ranks", 1)}
    given = {name: value for name, value in given.items() if (name, value) != ("ranks", AUTO_RANKS)}
    for name, value in given.items():
        if name not in FREE_OPTIONS and not _same(name, value, then[name]):
            raise UsageError(
                f"--{name.replace('_', '-')} {value} differs from the sweep in {path}, which was measured with "
                f"{then[name]}",
                hint="omit the option, or start a new sweep without --resume",
            )
    free = {name: value for name, value in given.items() if name in FREE_OPTIONS}
    measured = tuple(outcome for outcome in stored.outcomes if outcome.measurement is not None)
    return Resumed(
        path=path, run=stored.run, before=before, chosen=replace(chosen, **free), outcomes=measured,
        spent_s=sum(outcome.wall_s for outcome in stored.outcomes), problems=stored.problems,
    )  # fmt: skip


def goal_of_resumed(resumed: Resumed, goal: Goal) -> Goal:
    """The goal of a sweep that is resumed: with other options, what blocks have decided is open again."""
    blocks = int((resumed.run.get("goal") or {}).get("settled_blocks") or 0)
    before, now = resumed.before, resumed.chosen
    if any(getattr(before, name) != getattr(now, name) for name in FREE_OPTIONS - _NO_OTHER_SEARCH):
        blocks = max((outcome.block for outcome in resumed.outcomes), default=0)
    return replace(goal, settled_blocks=blocks)


def refuse_another_sweep(resumed: Resumed, prepared: Prepared, more: Sequence[str] = ()) -> None:
    """Check that data set, accelerator and host are the ones that the outcomes were measured with.

    Args:
        more: other differences, one phrase each.

    Raises:
        UsageError: names everything that differs.
    """
    differences = [*find_differences(resumed.run, prepared), *more]
    if differences:
        raise UsageError(
            f"{resumed.path} cannot be resumed: {'; '.join(differences)}",
            hint="its outcomes stay readable; start a new sweep without --resume",
        )


def with_the_emulated_device_of(run: Mapping[str, Any], prepared: Prepared) -> Prepared:
    """The same with an emulated device as it was: what its name stands for may have changed since ``run.json``."""
    stored = _stored_accelerator(run)
    now = prepared.accelerator
    if stored is None or (stored.kind, stored.name) != ("emulated", now.name):
        return prepared
    return replace(prepared, accelerator=stored)


def _stored_accelerator(run: Mapping[str, Any]) -> AcceleratorSpec | None:
    """``None``: there is none that can be read."""
    try:
        return from_dict(AcceleratorSpec, run.get("workload", {}).get("accelerator", {}))
    except TypeError:
        return None


def find_differences(run: Mapping[str, Any], prepared: Prepared) -> list[str]:
    """What differs from what ``run.json`` says, one phrase each."""
    found = []
    fingerprint = run.get("dataset_fingerprint")
    if fingerprint != prepared.images.fingerprint:
        found.append(f"the images have changed (fingerprint {fingerprint}, now {prepared.images.fingerprint})")
    stored = _stored_accelerator(run)
    if stored != prepared.accelerator:
        # A damaged record may still hold the name, which says more than "unknown".
        was = run.get("workload", {}).get("accelerator", {}).get("name", "unknown")
        found.append(f"the accelerator is {prepared.accelerator.name}, it was {was}")
    ranks = run.get("workload", {}).get("ranks", 1)
    if ranks != prepared.ranks and "script" not in run:
        found.append(f"the number of ranks is {prepared.ranks}, it was {ranks}")
    if list(run.get("gpus", [])) != list(prepared.gpus):
        found.append(f"the GPUs are {list(prepared.gpus)}, they were {run.get('gpus', [])}")
    before, now = run.get("host", {}), to_dict(prepared.host)
    found += [f"the host's {name} is {now[name]}, it was {before.get(name)}" for name in _HOST_FACTS
              if now[name] != before.get(name)]  # fmt: skip
    old, new = before.get("versions", {}), now["versions"]
    found += [f"{name} is {new.get(name, 'not installed')}, it was {old.get(name, 'not installed')}"
              for name in sorted({*old, *new}) if old.get(name) != new.get(name)]  # fmt: skip
    return found


def differences_of_script(resumed: Resumed, loader: ScriptLoader, own: Candidate) -> list[str]:
    """What differs in a script that was started again, one phrase each.

    Args:
        own: the settings that it has now.
    """
    found = []
    if any(outcome.role == "baseline" and outcome.candidate != own for outcome in resumed.outcomes):
        found.append("the script has other settings now")
    script = resumed.run.get("script") or {}
    if script and not script.get("epoch_starts_counted") and loader.samples_between_starts(max(1, own.num_workers)):
        found.append("its rates left out how long workers take to start with each epoch")
    stored = script.get("loader") or {}
    for name, what in _SCRIPT_FACTS.items():
        now = getattr(loader, name)
        if name in stored and stored[name] != now:
            found.append(f"the script's {what} is {now}, it was {stored[name]}")
    return found


def _same(name: str, given: object, chosen: object) -> bool:
    """The option has the value of before; one folder can be written in several ways."""
    if name == "dataset" and not str(chosen).startswith(SCHEME):
        return os.path.abspath(os.path.expanduser(str(given))) == os.path.abspath(str(chosen))
    return given == chosen


def _options(path: Path, stored: StoredRun) -> SweepOptions:
    try:
        if stored.run.get("kind") != "sweep" or any(problem.startswith(f"{RUN_FILE}: ") for problem in stored.problems):
            raise TypeError("not a sweep, or not all of it is left")
        return from_dict(SweepOptions, options_today(stored.run["options"]))
    except (KeyError, TypeError, AttributeError, ValueError, UsageError):
        damaged = (problem for problem in stored.problems if problem.startswith(RUN_FILE))
        problem = next(damaged, f"{RUN_FILE} holds no sweep's options")
        raise UsageError(f"{path} cannot be resumed: {problem}", hint="start a new sweep") from None
