"""The options of a sweep, and what of them cannot be meant."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

from pipetune.cli import parse
from pipetune.errors import MissingPackageError
from pipetune.search.blocks import MOST_BLOCKS


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """The options as the user wrote them."""

    dataset: str
    model: str
    target: float
    target_metric: str
    backends: str | None
    workers: str | None
    prefetch: str
    batch_size: int
    image_size: int
    precision: str
    device: str
    seconds: float
    budget: str | None
    grid: bool
    cache: str
    timeout: str | None
    seed: int
    vary: str | None = None
    fix: tuple[str, ...] = ()
    exact: bool = False
    cheapest: str = "accelerator,cores,memory,pixels"
    max_workers: int | None = None
    max_ram: str | None = None
    max_shm: str | None = None
    blocks: int = MOST_BLOCKS


def check(chosen: SweepOptions) -> None:
    """Refuse what cannot be meant, before any file is touched.

    Raises:
        UsageError: names the option and the value.
        MissingPackageError: torch is not installed.
    """
    parse.within("--target", chosen.target, lambda v: 0 < v <= 1, "write a share such as 0.9")
    parse.within("--batch-size", chosen.batch_size, lambda v: v >= 1, "write --batch-size 64")
    parse.within("--image-size", chosen.image_size, lambda v: 8 <= v <= 4096, "write --image-size 224")
    parse.within("--seconds", chosen.seconds, lambda v: 0.2 <= v <= 3600, "write --seconds 4")
    parse.within("--blocks", chosen.blocks, lambda v: 0 <= v <= 20, "write --blocks 3")
    parse.within("--seed", chosen.seed, lambda v: 0 <= v < 2**32, "write --seed 0")
    parse.one_of("--target-metric", chosen.target_metric, parse.METRICS)
    parse.one_of("--precision", chosen.precision, parse.PRECISIONS)
    parse.one_of("--cache", chosen.cache, parse.CACHES)
    require("torch", True)


def require(distribution: str, needed: bool) -> None:
    """Refuse where a distribution that is needed is not installed.

    Raises:
        MissingPackageError: says how to install it.
    """
    try:
        if needed:
            importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise MissingPackageError(
            f"{distribution} is not installed", hint="run: pip install 'pipetune[torch]'"
        ) from None
