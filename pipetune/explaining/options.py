"""What is to be explained: a candidate of a stored sweep, or one that is named, on a data set."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipetune.candidates.varied import names_to_vary
from pipetune.datasets.index import read_index
from pipetune.errors import UsageError
from pipetune.explaining.stored import workload_of
from pipetune.explaining.subject import Subject
from pipetune.machine.host import Host, describe_host
from pipetune.records.sweep import Candidate
from pipetune.registry import BACKENDS, OWN, default_backend
from pipetune.runs.load import load
from pipetune.runs.run import SWEEP
from pipetune.sweeping.imported_loader import find_loader, options_for
from pipetune.sweeping.options import CACHES, SweepOptions
from pipetune.sweeping.setup import Prepared, plan, prepare
from pipetune.sweeping.stored import sweep_result

#: The key of a candidate: what decodes, workers, prefetch depth, batch size, and whatever else is set.
_KEY = re.compile(r"(?P<backend>.+?)-w(?P<workers>\d+)-p(?P<depth>\d+)-b(?P<batch>\d+)(?:-.*)?")
#: Names that stand for a candidate of a sweep.
_ALIASES = ("recommended", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The defaults are those of the command and of ``pipetune.explain``."""

    run: Path | None = None
    """A stored sweep; ``None``: a data set or a loader is named."""
    dataset: str | None = None
    """As for a sweep."""
    loader: str | None = None
    """A loader of the user's own, named as for a sweep."""
    candidate: str | None = None
    """Its key; or ``recommended`` or ``default``, of a sweep. ``None``: the recommended one; of a data set the usual
    loader with as many workers as cores."""
    seconds: float = 2.0
    """Length of the timed phase of each part (s)."""
    blocks: int = 3
    """How often each part is measured."""
    cold: bool = True
    """Storage is measured as well: files are dropped from the page cache."""
    cache: str = "warm"
    """Without a run: the state of the page cache in which the whole loader is judged."""
    model: str = "resnet50"
    """Without a run: see :class:`pipetune.sweeping.options.SweepOptions`, also for those that follow."""
    device: str = "auto"
    image_size: int = 224
    augment: str = "basic"
    precision: str = "auto"
    compile: bool = False
    seed: int = 0


def check_values(chosen: ExplainOptions) -> None:
    """Refuse values that are out of range, before anything is read.

    Raises:
        UsageError: names the option and the value.
    """
    named = [name for name in (chosen.run, chosen.dataset, chosen.loader) if name is not None]
    if len(named) != 1:
        many = "none is named" if not named else f"{' and '.join(map(str, named))} are named"
        raise UsageError(f"explain takes one run folder, data set or loader, and {many}",
                         hint="write pipetune explain RUN, or pipetune explain --dataset DIR")  # fmt: skip
    if chosen.cache not in CACHES:
        raise UsageError(f"--cache {chosen.cache!r} is unknown", hint=f"choose from {', '.join(CACHES)}")
    if chosen.cache == "cold" and not chosen.cold:
        raise UsageError("--stages warm leaves out what --cache cold asks about", hint="omit one of them")
    if chosen.loader is not None and chosen.candidate is not None:
        raise UsageError(f"--candidate {chosen.candidate} is for a run or a data set, and a loader of your own has its "
                         "own settings", hint="omit it")  # fmt: skip
    if not 0.2 <= chosen.seconds <= 600:
        raise UsageError(f"--seconds {chosen.seconds:g} is out of range", hint="write --seconds 2")
    if not 1 <= chosen.blocks <= 20:
        raise UsageError(f"--blocks {chosen.blocks} is out of range", hint="write --blocks 3")


def find_subject(chosen: ExplainOptions, on_stage: Callable[[str, int, int | None], None]) -> Subject:
    """Read what is to be explained.

    Raises:
        UsageError: it cannot be, or there is no such candidate.
        PipetuneError: the data set cannot be read.
    """
    check_values(chosen)
    if chosen.run is not None:
        return _of_run(chosen)
    return _of_dataset(chosen, on_stage) if chosen.dataset is not None else _of_loader(chosen, on_stage)


def _refuse_without_effect(chosen: ExplainOptions, names: tuple[str, ...], why: str) -> None:
    """Refuse options that would change nothing.

    Raises:
        UsageError: one was given.
    """
    for name in names:
        value = getattr(chosen, name)
        if value != getattr(ExplainOptions(), name):
            option = name.replace("_", "-")
            shown = f"--{option}" if value is True else f"--{option} {value}"
            raise UsageError(f"{shown} has no effect: {why}", hint=f"omit --{option}")


def _of_run(chosen: ExplainOptions) -> Subject:
    assert chosen.run is not None
    _refuse_without_effect(
        chosen,
        ("cache", "model", "device", "image_size", "augment", "precision", "compile"),
        "a run is measured again as the sweep did",
    )
    run = load(chosen.run)
    if run.kind != SWEEP:
        raise UsageError(
            f"{run.path} is a run of pipetune {run.kind}, not of pipetune sweep", hint="name the folder of a sweep"
        )
    if run.info.get("script"):
        raise UsageError(
            f"{run.path} is the sweep of a script, whose loader only the script can open",
            hint="pipetune explain --dataset DIR measures pipetune's loaders on the same images",
        )
    workload = workload_of(run)
    if workload.cache == "cold" and not chosen.cold:
        raise UsageError("--stages warm leaves out what this sweep measured: files from storage", hint="omit it")
    result = sweep_result(run)
    known = {outcome.candidate.key: outcome.candidate for outcome in run.outcomes if outcome.role != "ceiling"}
    aliases = {
        "recommended": None if result.recommended is None else result.recommended.candidate,
        "default": None if result.baseline is None else result.baseline.candidate,
    }
    name = chosen.candidate or ("recommended" if aliases["recommended"] is not None else "default")
    candidate = aliases[name] if name in _ALIASES else known.get(name)
    if candidate is None:
        names = ", ".join([*(alias for alias, found in aliases.items() if found is not None), *known])
        raise UsageError(f"{run.path} has no candidate {name}", hint=f"there are: {names or 'none'}")
    workload = replace(workload, seconds=chosen.seconds, warmup_limit_s=max(4.0, 2 * chosen.seconds))
    host = describe_host()
    return Subject(
        candidate=candidate, workload=workload, images=read_index(workload.index_path),
        usable_cores=host.cores_usable, swept=result.ranking if _is_of(result.host, host) else (),
    )  # fmt: skip


def _is_of(swept: Mapping[str, Any], host: Host) -> bool:
    """Whether a sweep's rates are of this machine, with as many cores."""
    return (swept.get("cpu_model"), swept.get("cores_usable")) == (host.cpu_model, host.cores_usable)


def _of_loader(chosen: ExplainOptions, on_stage: Callable[[str, int, int | None], None]) -> Subject:
    assert chosen.loader is not None
    _refuse_without_effect(chosen, ("augment",), "what your loader does to its images is measured as it is")
    _refuse_without_effect(chosen, ("cache",), "which files your loader reads is not known")
    loader = find_loader(chosen.loader)
    cores = max(1, round(describe_host().cores_usable))
    workers = cores if loader.own is None else loader.own.num_workers
    options = options_for(
        SweepOptions(
            dataset="", model=chosen.model, device=chosen.device, image_size=chosen.image_size,
            precision=chosen.precision, compile=chosen.compile, seed=chosen.seed, seconds=chosen.seconds,
            workers=(workers,),
        ),
        loader,
    )  # fmt: skip
    prepared = prepare(options, on_stage)
    space = prepared.space
    return Subject(
        candidate=loader.own or space.candidate(OWN.name, workers, space.depth_of(OWN.name, workers)),
        workload=plan(options, prepared, "").conditions.workload, images=prepared.images,
        usable_cores=prepared.host.cores_usable, notes=prepared.all_notes, loader=loader.packed,
    )  # fmt: skip


def _of_dataset(chosen: ExplainOptions, on_stage: Callable[[str, int, int | None], None]) -> Subject:
    assert chosen.dataset is not None
    cores = max(1, round(describe_host().cores_usable))
    found = None if chosen.candidate is None else _KEY.fullmatch(chosen.candidate)
    if chosen.candidate is not None and (found is None or found["backend"] not in BACKENDS):
        raise UsageError(f"there is no candidate {chosen.candidate}",
                         hint="write it as a sweep names it, e.g. --candidate opencv-w2-p4-b64")  # fmt: skip
    workers, depth, batch = (int(found[name]) for name in ("workers", "depth", "batch")) if found else (cores, 2, 64)
    options = SweepOptions(
        dataset=chosen.dataset, model=chosen.model, device=chosen.device, image_size=chosen.image_size,
        precision=chosen.precision, compile=chosen.compile, seed=chosen.seed, seconds=chosen.seconds,
        cache=chosen.cache, batch_size=batch, augment=chosen.augment,
        workers=(workers,), prefetch=(max(1, depth),), backends=(found["backend"] if found else default_backend(),),
        vary=names_to_vary("all"),
    )  # fmt: skip
    prepared = _prepared(options, on_stage)
    lacking = dict(prepared.does_not_fit)
    if found is None:
        name = prepared.space.default_backend
        candidate: Candidate | None = prepared.space.candidate(name, workers, prepared.space.depth_of(name, workers))
    else:
        candidate = next((one for one in (*prepared.space.grid(), *lacking) if _is(one, chosen.candidate)), None)
    if candidate is None:
        raise UsageError(f"there is no candidate {chosen.candidate} for this data set and device",
                         hint="write it as a sweep names it, e.g. --candidate opencv-w2-p4-b64")  # fmt: skip
    if candidate in lacking:
        failure = lacking[candidate]
        raise UsageError(f"{candidate.key} does not fit on this machine: {failure.message}",
                         hint="name fewer workers or smaller batches in the key")  # fmt: skip
    workload = plan(options, prepared, "").conditions.workload
    return Subject(
        candidate=candidate, workload=workload, images=prepared.images, usable_cores=prepared.host.cores_usable,
        notes=prepared.all_notes,
    )  # fmt: skip


def _prepared(options: SweepOptions, on_stage: Callable[[str, int, int | None], None]) -> Prepared:
    """As a sweep prepares itself; what it says of options that are in a key here names the key.

    Raises:
        UsageError: an option that does not fit the machine or the data set.
    """
    try:
        return prepare(options, on_stage)
    except UsageError as error:
        hint = str(error.hint or "")
        if not any(name in hint or name in error.message for name in ("--batch-size", "--workers", "--prefetch")):
            raise
        raise UsageError(error.message, hint="name others in the key, e.g. --candidate pillow-w1-p2-b8") from error


def _is(candidate: Candidate, key: str | None) -> bool:
    """Whether a key names it; on a CUDA device all candidates copy from page-locked memory, said or not."""
    return key in (candidate.key, replace(candidate, pin_memory=False).key)
