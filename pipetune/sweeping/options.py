"""The options of a sweep as values: from the command line, a notebook or a run folder alike."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from pipetune.augmentation.recipes import BASIC, RECIPES
from pipetune.candidates.rank_cores import BINDINGS
from pipetune.errors import MissingPackageError, UsageError
from pipetune.records.sweep import Candidate
from pipetune.search.costs import CRITERIA
from pipetune.search.effort import DEFAULT_EFFORT, EFFORTS
from pipetune.usercode import make_loader

METRICS = ("goodput", "nvml")
PRECISIONS = ("auto", "fp32", "amp", "bf16")
CACHES = ("warm", "cold")
SYNCS = ("step", "none")
#: As many ranks as there are GPUs that this process sees.
AUTO_RANKS = 0
#: More training processes than a host has.
_MOST_RANKS = 256
_MOST_HOSTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What is measured, and how the search goes. The defaults are those of the command and of ``pipetune.sweep``."""

    dataset: str
    """A folder, tar shards, a ``synthetic:`` URI, or ``own:NAME`` for a loader of the user's own."""
    model: str = "resnet50"
    target: float = 0.9
    """Share of the accelerator's max ingestion rate to reach (0..1]."""
    target_metric: str = "goodput"
    """One of :data:`METRICS`."""
    backends: tuple[str, ...] | None = None
    """``None``: all that are installed."""
    workers: tuple[int, ...] | None = None
    """Numbers of loader workers; ``None``: from the usable cores."""
    prefetch: tuple[int, ...] = (2, 4)
    """Prefetch depths (batches per worker)."""
    batch_size: int = 64
    """Samples per batch."""
    image_size: int = 224
    """Edge of the square training crop (px)."""
    precision: str = "auto"
    """One of :data:`PRECISIONS`."""
    device: str = "auto"
    """``auto``, ``cuda:N``, ``cpu`` or ``emulated:NAME|RATE`` (:mod:`pipetune.accelerator.parse_device`)."""
    seconds: float = 4.0
    """Length of the timed phase of a candidate (s)."""
    budget_s: float | None = None
    """No candidate is proposed after this long (s); ``None``: no limit."""
    grid: bool = False
    """Every combination is measured; there is no search."""
    cache: str = "warm"
    """One of :data:`CACHES`."""
    timeout_s: float | None = None
    """A candidate that takes longer is ended (s); ``None``: derived from ``seconds``."""
    seed: int = 0
    vary: tuple[str, ...] | None = None
    """Settings of a loader to try; ``None``: those that a sweep tries by default; ``()``: none."""
    fix: tuple[tuple[str, Any], ...] = ()
    """Settings of a loader that keep one value: pairs of name and value."""
    exact: bool = False
    """Backends whose pixels differ visibly from Pillow's are left out."""
    cheapest: tuple[str, ...] = ("accelerator", "cores", "memory", "pixels")
    """What costs, the costliest first: names of :data:`pipetune.search.costs.CRITERIA`."""
    max_workers: int | None = None
    max_ram_bytes: int | None = None
    max_shm_bytes: int | None = None
    blocks: int | None = None
    """The best candidates are compared side by side at most this often; ``None``: as ``effort`` has it."""
    untuned: Candidate | None = None
    """The user's own loader as it is, where it takes no settings; ``None``: gains are stated against torch's defaults.
    """
    remarks: tuple[str, ...] = ()
    """What was found out about the user's own loader, to be said before it is measured."""
    allow_writes: bool = False
    """What the script writes takes effect: its files are not protected (:mod:`pipetune.protection`)."""
    command: tuple[str, ...] = ()
    """The user's own training script, whose loader is tuned; ``()``: loaders of pipetune's over ``dataset``."""
    effort: str = DEFAULT_EFFORT
    """How far the search goes: a name of :data:`pipetune.search.effort.EFFORTS`."""
    ranks: int = 1
    """Training processes that share this host and are measured at the same time; :data:`AUTO_RANKS`: one for each GPU.
    """
    sync: str = "step"
    """One of :data:`SYNCS`: whether ranks wait for each other at the end of each step."""
    bind: str = "none"
    """One of :data:`pipetune.candidates.rank_cores.BINDINGS`: cores that a rank may use."""
    augment: str = BASIC
    """What is done to each image: a name in :data:`pipetune.augmentation.recipes.RECIPES`."""
    compile: bool = False
    """``torch.compile`` compiles the model that is trained."""
    ceilings: tuple[int, ...] | None = None
    """Other batch sizes with which the accelerator's max ingestion rate is measured as well; ``None``: none."""
    hosts: int = 1
    """Hosts that measure each candidate at the same time (:mod:`pipetune.hosts`)."""


#: Options that a resumed sweep may be given anew: they decide which candidates are measured and for how long, not what
#: a measurement means.
FREE_OPTIONS = frozenset({
    "target", "target_metric", "backends", "workers", "prefetch", "grid", "budget_s", "timeout_s", "vary", "fix",
    "exact", "cheapest", "max_workers", "max_ram_bytes", "max_shm_bytes", "blocks", "effort", "ceilings",
    "allow_writes",
})  # fmt: skip


def check(chosen: SweepOptions) -> None:
    """Refuse values that are out of range, before any file is touched.

    Raises:
        UsageError: names the option and the value.
        MissingPackageError: torch is not installed.
    """
    check_values(chosen)
    require("torch")
    if chosen.augment != BASIC:
        require("torchvision")


def check_values(chosen: SweepOptions) -> None:
    """The same, where torch need not be installed here.

    Raises:
        UsageError: names the option and the value.
    """
    _within("--target", chosen.target, lambda v: 0 < v <= 1, "write a share such as 0.9")
    _within("--batch-size", chosen.batch_size, lambda v: v >= 1, "write --batch-size 64")
    _within("--image-size", chosen.image_size, lambda v: 8 <= v <= 4096, "write --image-size 224")
    _within("--seconds", chosen.seconds, lambda v: 0.2 <= v <= 3600, "write --seconds 4")
    if chosen.backends is not None and not chosen.backends:
        raise UsageError("--backends names no backend", hint="write --backends pillow,opencv")
    for option, limit_s in (("--budget", chosen.budget_s), ("--timeout", chosen.timeout_s)):
        if limit_s is not None:
            _within(option, limit_s, lambda v: 0 < v < math.inf, f"write {option} 5m")
    if chosen.blocks is not None:
        _within("--blocks", chosen.blocks, lambda v: 0 <= v <= 20, "write --blocks 3")
    _within("--seed", chosen.seed, lambda v: 0 <= v < 2**32, "write --seed 0")
    _within("--ranks", chosen.ranks, lambda v: 0 <= v <= _MOST_RANKS, "write --ranks 8, or --ranks auto")
    _within("--hosts", chosen.hosts, lambda v: 1 <= v <= _MOST_HOSTS, "write --hosts auto")
    _one_of("--augment", chosen.augment, RECIPES)
    if chosen.augment != BASIC and (chosen.command or chosen.dataset.startswith(make_loader.SCHEME)):
        raise UsageError(
            f"--augment {chosen.augment} has no effect on {'a script' if chosen.command else 'a loader of your own'}",
            hint="omit it: what your code does to its images is measured as it is",
        )
    if chosen.hosts > 1 and (chosen.command or chosen.dataset.startswith(make_loader.SCHEME)):
        what = "a script" if chosen.command else "a loader of your own"
        raise UsageError(f"--hosts {chosen.hosts} is for a data set, not for {what}",
                         hint="measure that on one host, without --hosts")  # fmt: skip
    if chosen.compile and chosen.command:
        raise UsageError(
            "--compile is for pipetune's own training step, and a script trains as it does",
            hint="omit it, and compile in the script",
        )
    if chosen.ceilings and (chosen.command or chosen.dataset.startswith(make_loader.SCHEME)):
        what = "a script, whose batches are its own" if chosen.command else "a loader of your own"
        raise UsageError(f"--ceilings is for a data set (got {what})", hint="pipetune batch-size -- python train.py")
    _numbers("--ceilings", chosen.ceilings, 1)
    _one_of("--sync", chosen.sync, SYNCS)
    _one_of("--bind", chosen.bind, BINDINGS)
    _numbers("--workers", chosen.workers, 0)
    _numbers("--prefetch", chosen.prefetch, 1)
    _one_of("--target-metric", chosen.target_metric, METRICS)
    _one_of("--precision", chosen.precision, PRECISIONS)
    _one_of("--cache", chosen.cache, CACHES)
    _one_of("--effort", chosen.effort, EFFORTS)
    if not chosen.cheapest:
        raise UsageError("--cheapest is empty", hint=f"choose from {', '.join(CRITERIA)}")
    for name in chosen.cheapest:
        _one_of("--cheapest", name, CRITERIA)


def require(distribution: str) -> None:
    """Refuse where a distribution is not installed.

    Raises:
        MissingPackageError: says how to install it.
    """
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise MissingPackageError(
            f"{distribution} is not installed", hint="run: pip install 'pipetune[torch]'"
        ) from None


def _one_of(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise UsageError(f"{option} {value!r} is unknown", hint=f"choose from {', '.join(choices)}")


def _within(option: str, value: float, allowed: Callable[[float], bool], hint: str) -> None:
    if not allowed(value):
        raise UsageError(f"{option} {value:g} is out of range", hint=hint)


def _numbers(option: str, values: tuple[int, ...] | None, minimum: int) -> None:
    if values is not None and not values:
        raise UsageError(f"{option} names no number", hint=f"write {option} 1,2,4")
    if values and min(values) < minimum:
        raise UsageError(f"{option} {min(values)} is below {minimum}", hint=f"write {option} {minimum},{minimum + 1}")
