"""From a script that has been started to a plan: the loader it trains on, the settings to try, the guards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pipetune.candidates import varied
from pipetune.candidates.settings import KEEP_WORKERS, SETTINGS, SIMD, ChosenValues
from pipetune.candidates.space import Space
from pipetune.datasets.index import ImageSet
from pipetune.errors import UsageError
from pipetune.install.find import find_pillow_simd
from pipetune.machine.host import Host, default_worker_counts, describe_host
from pipetune.machine.nvml.processes import visible_gpu_names
from pipetune.measure.conditions import Conditions
from pipetune.measure.script.pil import why_no_simd
from pipetune.records.script import ScriptLoader
from pipetune.records.summaries import AS_IT_IS
from pipetune.records.sweep import AcceleratorSpec, Candidate, Goal, Workload
from pipetune.registry import SCRIPT, USER
from pipetune.sweeping import worker_limits
from pipetune.sweeping.options import SweepOptions
from pipetune.sweeping.setup import Prepared
from pipetune.sweeping.sweep_plan import Plan
from pipetune.sweeping.worker_limits import why_not_kept

#: Settings that a script may have otherwise than a candidate by default, and which keep its values unless varied.
_KEPT: dict[str, Any] = {"in_order": True, "start_method": "fork"}
#: Start of a sweep's data set name where a script is tuned; the script's name follows.
SCHEME = "script:"


def prepare_script(chosen: SweepOptions, loader: ScriptLoader) -> Prepared:
    """What is to be measured in a script that trains on this loader.

    Raises:
        UsageError: an option leaves nothing to try.
    """
    if chosen.ranks != 1:
        raise UsageError(
            f"--ranks {chosen.ranks or 'auto'} is for loaders over a data set; a script starts its own ranks",
            hint="omit it, and tune the command with torchrun in it: -- torchrun --nproc-per-node=4 train.py",
        )
    if chosen.target_metric == "nvml" and (loader.device != "cuda" or loader.ranks > 1):
        why = f"the script trains on {loader.device}" if loader.ranks == 1 else (
            f"the script has {loader.ranks} ranks, and the utilisation of one GPU says nothing of the others'"
        )  # fmt: skip
        raise UsageError(f"--target-metric nvml: {why}", hint="use --target-metric goodput")
    host = describe_host()
    own = own_candidate(loader)
    counts, notes = _worker_counts(chosen, loader, own, host)
    depths = tuple(sorted({*chosen.prefetch, *([own.prefetch_depth] if own.num_workers else [])}))
    if "prefetch_factor" in loader.fixed:
        depths = (own.prefetch_depth or 2,)
    on_gpu = loader.device == "cuda"
    settings = _own_first(
        varied.settings(_varied(chosen, loader), chosen.fix, backends=(SCRIPT.name,), on_gpu=on_gpu), loader
    )
    if KEEP_WORKERS in dict(settings) and (reason := why_not_kept(loader)) is not None:
        notes.append(reason)
        settings = tuple(pair for pair in settings if pair[0] != KEEP_WORKERS)
    if impossible := [name for name, _ in settings if name in loader.fixed]:
        notes.append(f"not varied, because {loader.loader_class} has no such setting: {', '.join(impossible)}")
        settings = tuple(pair for pair in settings if pair[0] not in impossible)
    no_simd = why_no_simd(loader, find_pillow_simd())
    if no_simd is not None and SIMD in dict(settings).get("decoder", ()):
        notes.append(f"Pillow-SIMD was not tried: {no_simd}")
        settings = _without_simd(settings)
    space = Space(
        backends=(SCRIPT.name,), workers=counts, prefetch=depths, batch_size=own.batch_size,
        pin_memory=own.pin_memory or (on_gpu and "pin_memory" not in loader.fixed),
        settings=settings,
        default_backend=SCRIPT.name, usable_cores=host.cores_usable, untuned=own, confirm_alone=True,
        alternates=loader.switchable, ranks=loader.ranks,
        restart_remedies=_restart_remedies(loader, settings, own),
    )  # fmt: skip
    name = loader.device_name or ("CPU" if not on_gpu else "a GPU")
    return Prepared(
        images=ImageSet(name=chosen.dataset, root="", classes=(), images=(), found_images=0),
        accelerator=AcceleratorSpec(kind=loader.device, name=name, device_index=loader.device_index),
        host=host, space=space, limit_bytes=0, gpus=visible_gpu_names(os.environ) if on_gpu else (),
        goal=Goal(target=chosen.target, metric=chosen.target_metric, cheapest=chosen.cheapest,
                  most_memory_bytes=chosen.max_ram_bytes, effort=chosen.effort),
        precision="as in the script", budget_s=chosen.budget_s, timeout_s=chosen.timeout_s,
        notes=(*notes, *_remarks(loader, host)),
    )  # fmt: skip


def _restart_remedies(loader: ScriptLoader, settings: ChosenValues, own: Candidate) -> ChosenValues:
    """Settings that help where workers start anew with each epoch, the script's own value first.

    Another way to start them is tried on the CPU only: a process that has used CUDA has no forks that use it, too.
    """
    if loader.samples_between_starts(max(1, own.num_workers)) is None:
        return ()
    varied = {name for name, values in settings if len(values) > 1}
    remedies: list[tuple[str, tuple[Any, ...]]] = []
    if KEEP_WORKERS not in (*varied, *loader.fixed) and why_not_kept(loader) is None:
        remedies.append((KEEP_WORKERS, (False, True)))
    can_fork = own.num_workers > 0 and own.start_method != "fork" and loader.device == "cpu"
    if can_fork and "start_method" not in (*varied, *loader.fixed):
        remedies.append(("start_method", (own.start_method, "fork")))
    return tuple(remedies)


def _varied(chosen: SweepOptions, loader: ScriptLoader) -> tuple[str, ...]:
    """Settings that are tried besides workers and prefetch depth: those asked for, or those with a reason to gain."""
    if chosen.vary is not None:
        return chosen.vary
    now, at_first = loader.cores
    reduced = ("worker_cores",) if 0 < now < at_first else ()
    with_reason = (*reduced, *(("opencv_threads",) if loader.has_cv2 else ()))
    return tuple(name for name in with_reason if name not in loader.fixed)


def _own_first(settings: ChosenValues, loader: ScriptLoader) -> ChosenValues:
    """The settings with the script's own values of those that are never changed unasked: first, or the only ones."""
    found = dict(settings)
    for name, default in _KEPT.items():
        stated = loader.settings.get(name)
        value = default if stated is None else stated
        if name in found and len(found[name]) > 1:
            found[name] = (value, *(other for other in found[name] if other != value))
        elif value != default and name not in loader.fixed:
            found.setdefault(name, (value,))
    return tuple((name, found[name]) for name in SETTINGS if name in found)


def _without_simd(settings: ChosenValues) -> ChosenValues:
    """The settings where Pillow-SIMD is no value of the decoder."""
    return tuple((name, tuple(value for value in values if value != SIMD) or ("own",)) for name, values in settings)


def own_candidate(loader: ScriptLoader) -> Candidate:
    """The candidate that the script itself is."""
    workers = int(loader.settings.get("num_workers") or 0)
    return Candidate(
        backend=SCRIPT.name, num_workers=workers, batch_size=loader.batch_size or 1, loader=USER,
        prefetch_depth=int(loader.settings.get("prefetch_factor") or 2) if workers else 0,
        pin_memory=bool(loader.settings.get("pin_memory")),
        **({name: found for name in _KEPT if (found := loader.settings.get(name)) is not None} if workers else {}),
    )  # fmt: skip


def _worker_counts(
    chosen: SweepOptions, loader: ScriptLoader, own: Candidate, host: Host
) -> tuple[tuple[int, ...], list[str]]:
    """Numbers of workers to try, per rank, and what to say about those that are not.

    0 is not among them unless the script has it: a data set may open files in the training process that processes
    which are forked later must not share.
    """
    notes = []
    wanted = set(default_worker_counts(host.cores_usable / loader.ranks) if chosen.workers is None else chosen.workers)
    if chosen.workers is None:
        wanted -= {0}
    if chosen.max_workers is not None:
        wanted = {count for count in wanted if count <= chosen.max_workers}
    if loader.own_generators and own.num_workers <= 1:
        refused = {count for count in wanted if count > own.num_workers}
        wanted -= refused
        notes.append(worker_limits.of_generators(loader.own_generators))
    if loader.undivided:
        refused = {count for count in wanted if count > 1 or own.num_workers > 1}
        wanted -= refused
        notes.append(worker_limits.of_undivided(own.num_workers))
    if loader.told_workers and (refused := wanted - {own.num_workers}):
        wanted -= refused
        notes.append(worker_limits.of_told_workers(loader.told_workers))
    if not loader.switchable and 0 in wanted:
        wanted -= {0}
        notes.append(f"no workers were not tried: a {loader.loader_class.rpartition('.')[2]} always has threads")
    if loader.shards is not None:
        most = max(1, loader.shards // loader.ranks)
        if refused := {count for count in wanted if count > most}:
            wanted -= refused
            notes.append(worker_limits.of_shards(most, loader.shards, loader.ranks))
    if (
        not wanted
        and not (loader.own_generators or loader.shards or loader.told_workers or loader.undivided)
        and chosen.max_workers is not None
    ):
        raise UsageError(f"--max-workers {chosen.max_workers} leaves no worker count", hint="write --max-workers 8")
    if wanted and chosen.max_workers is not None and own.num_workers > chosen.max_workers:
        notes.append(
            f"the script's own {own.num_workers} workers are measured and not recommended: --max-workers is "
            f"{chosen.max_workers}"
        )
        return tuple(sorted(wanted)), notes
    return tuple(sorted({*wanted, own.num_workers})), notes


def _remarks(loader: ScriptLoader, host: Host) -> list[str]:
    found = []
    if loader.ranks > 1:
        found.append(f"{loader.ranks} ranks train together: worker counts are of each rank, rates and cores of all")
    if loader.others_trained:
        found.append(
            f"the script trains on {loader.others_trained + 1} loaders: the first is tuned, the others keep theirs"
        )
    now, at_first = loader.cores
    if 0 < now < at_first:
        found.append(
            f"the process began with {at_first} cores and trains on {now}: its workers inherit that, because a library "
            "has set the affinity"
        )
    if not loader.switchable:
        found.append(
            f"{loader.loader_class} takes its settings when it is made only: each candidate is a start of the script"
        )
    if loader.identity is None:
        found.append(
            "the loader is made where no call of the script's can be seen, so it cannot be tuned by pipetune run"
        )
    return found


def plan_script(chosen: SweepOptions, prepared: Prepared, *, ranks: int = 1) -> Plan:
    """The plan of the sweep of a script that starts so many ranks."""
    workload = Workload(
        dataset=chosen.dataset, index_path="", accelerator=prepared.accelerator, model="the script's own",
        image_size=0, precision=prepared.precision, seconds=chosen.seconds, warmup_limit_s=max(4.0, 2 * chosen.seconds),
        cache=AS_IT_IS, seed=chosen.seed,
    )  # fmt: skip
    conditions = Conditions(
        workload=workload, paths=(), cores=frozenset(os.sched_getaffinity(0)), timeout_s=prepared.timeout_s
    )  # fmt: skip
    return Plan(
        space=prepared.space, goal=prepared.goal, conditions=conditions, seed=chosen.seed, budget_s=prepared.budget_s,
        grid=chosen.grid, blocks=chosen.blocks, in_script=True, script_ranks=ranks,
    )  # fmt: skip


def uri_of(command: Sequence[str]) -> str:
    """The data set name of a script's sweep: ``script:train.py``."""
    scripts = [word for ending in (".py", ".sh") for word in command if word.endswith(ending) and word[0] != "-"]
    modules = [after for word, after in pairwise(command) if word == "-m"]
    # No other word: it may be the value of an option, and a secret.
    return f"{SCHEME}{os.path.basename((*scripts, *modules, command[0])[0])}"
