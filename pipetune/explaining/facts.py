"""What a verdict about a loader is made from. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.augmentation.recipes import DEVICE
from pipetune.records.explanation import (
    ACCELERATOR,
    AUGMENT,
    AUGMENTING,
    COLD,
    COLLATE,
    DECODE,
    FETCH,
    HAND_OVER,
    LOOP,
    NORMALISE,
    ON_DEVICE,
    READING,
    STAGES,
    STORAGE,
    TRANSFER,
    TRANSFORM,
    WITH_ACCELERATOR,
    Part,
    StageCost,
)
from pipetune.records.sweep import Candidate, Outcome
from pipetune.registry import USER

#: Stages in words.
WORDS = {
    FETCH: "reading files", DECODE: "decoding", TRANSFORM: "cropping, resizing and normalising",
    AUGMENT: "augmenting", NORMALISE: "normalising", COLLATE: "collating", HAND_OVER: "handing batches over",
}  # fmt: skip
#: The stage of cropping where normalising is one of its own.
_CROPPING = "cropping and resizing"
#: Parts in words.
PARTS = {
    ACCELERATOR: "the accelerator, batches always ready",
    LOOP: "the training loop by itself",
    TRANSFER: "the accelerator, batches copied to it",
    ON_DEVICE: "the accelerator, images augmented on it",
    HAND_OVER: "the loader alone: handing over",
    COLLATE: "the loader alone: from collating on",
    NORMALISE: "the loader alone: from normalising on",
    AUGMENT: "the loader alone: from augmenting on",
    TRANSFORM: "the loader alone: from cropping on",
    DECODE: "the loader alone: from decoding on",
    FETCH: "the loader alone, files in memory",
    WITH_ACCELERATOR: "the loader and the accelerator",
    READING: "reading files in memory, and nothing else",
    COLD: "the loader alone, files from storage",
    STORAGE: "reading files from storage, and nothing else",
}  # fmt: skip
#: A loader that reads this much of its files (share; bytes per sample where their size is not known) from storage has
#: not found them in memory.
_FROM_STORAGE, _FROM_STORAGE_BYTES = 0.5, 8192


def name_of(stages: Sequence[str], beside: Sequence[StageCost] = ()) -> str:
    """Stages in words: ``'decoding, cropping, resizing and normalising'``.

    Args:
        beside: all stages of the loader.
    """
    if tuple(stage for stage in STAGES if stage not in AUGMENTING) == tuple(s for s in stages if s not in AUGMENTING):
        return "loading"
    normalised_apart = any(NORMALISE in cost.stages for cost in beside) or NORMALISE in stages
    words = {**WORDS, TRANSFORM: _CROPPING} if normalised_apart else WORDS
    return ", ".join(words[stage] for stage in stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was measured, and what it was measured of."""

    candidate: Candidate
    parts: tuple[Part, ...]
    stages: tuple[StageCost, ...]
    usable_cores: float
    mean_bytes: float
    """Mean size of a file; 0 where it is not known."""
    cold: bool
    """The loader is judged with files that are not in the page cache."""
    blocking: bool = False
    """A training step keeps the training process: nothing is loaded there meanwhile."""
    ranks: int = 1
    swept: tuple[Outcome, ...] = ()
    """What a sweep has measured of other candidates, under the same conditions."""

    def part(self, name: str) -> Part | None:
        """One that was measured; ``None``: it was not."""
        return next((part for part in self.parts if part.name == name), None)

    def rate(self, name: str) -> float | None:
        """Of a part (samples/s); ``None``: it was not measured."""
        part = self.part(name)
        return None if part is None else part.samples_per_s

    @property
    def demand(self) -> float | None:
        """What the accelerators take (samples/s), copies included, and augmenting where it is left to them."""
        rates = [rate for rate in (self.rate(ACCELERATOR), self.rate(TRANSFER)) if rate is not None]
        least, augmenting_s = min(rates, default=None), self.augmenting_s
        if least is None or self.candidate.transforms_on != DEVICE or augmenting_s is None:
            return least
        return 1 / (1 / least + augmenting_s)

    @property
    def augmenting_s(self) -> float | None:
        """Time that augmenting takes the accelerators per sample of all ranks (s); ``None``: it was not measured."""
        plain, there = self.rate(ACCELERATOR), self.rate(ON_DEVICE)
        return None if plain is None or there is None else max(0.0, 1 / there - 1 / plain)

    @property
    def workers(self) -> int:
        """Of all ranks."""
        return self.ranks * self.candidate.num_workers

    @property
    def own(self) -> bool:
        """The loader is the user's own."""
        return self.candidate.loader == USER

    @property
    def step_s(self) -> float:
        """CPU time that the training loop itself takes per sample (s); 0 where it is not known."""
        part = self.part(ACCELERATOR)
        return 0.0 if part is None else (part.cpu_s_per_1000_samples or 0.0) / 1000

    @property
    def load_s(self) -> float:
        """CPU time that loading takes per sample (s), files in memory; 0 where it is not known."""
        part = self.part(FETCH)
        return 0.0 if part is None else (part.cpu_s_per_1000_samples or 0.0) / 1000

    @property
    def by_cores(self) -> float | None:
        """What all usable cores can do (samples/s), the training loop's share included; ``None``: it is not known."""
        each_s = self.load_s + self.step_s
        return self.usable_cores / each_s if each_s > 0 and self.load_s > 0 else None

    @property
    def supply(self) -> float | None:
        """What the loader can deliver beside the training loop, files in memory (samples/s)."""
        warm = self.rate(FETCH)
        if warm is None:
            return None
        if not self.candidate.num_workers:  # in turn with the steps, in each training process
            step_s = self.ranks / (self.demand or warm) if self.blocking else self.step_s
            warm = self.ranks / (self.ranks / warm + step_s)
        return warm if self.by_cores is None else min(warm, self.by_cores)

    @property
    def reads_storage(self) -> bool:
        """The loader beside the accelerator has read its files from storage, by itself or because it was to."""
        part = self.part(WITH_ACCELERATOR)
        read = None if part is None else part.bytes_per_sample
        return self.cold or (read or 0.0) >= (_FROM_STORAGE * self.mean_bytes or _FROM_STORAGE_BYTES)
