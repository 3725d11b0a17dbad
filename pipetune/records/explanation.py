"""What ``pipetune explain`` found: the cost of each stage of a loader, and what sets the pace."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.records.sweep import Candidate

#: What a loader does with a sample, in this order: read its file; decode it; crop, resize, flip and normalise it; copy
#: it into a batch with others; hand that to the training loop. A loader that augments images does so before it
#: normalises them, so that both are stages of their own.
FETCH, DECODE, TRANSFORM, AUGMENT, NORMALISE, COLLATE, HAND_OVER = STAGES = (
    "fetch", "decode", "transform", "augment", "normalise", "collate", "hand_over",
)  # fmt: skip
#: Stages of loaders that augment images only.
AUGMENTING = (AUGMENT, NORMALISE)

#: What is measured besides loaders that do only the last of these stages: see :attr:`Part.name`.
ACCELERATOR, LOOP, TRANSFER, ON_DEVICE, WITH_ACCELERATOR, READING, COLD, STORAGE = (
    "accelerator", "loop", "transfer", "on_device", "with_accelerator", "reading", "cold", "storage",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the pipeline that was measured by itself."""

    name: str
    """``accelerator``: batches that lie on it; ``loop``: the same batches, with nothing that works on them;
    ``transfer``: the same, copied to the accelerator in each step; ``on_device``: batches that lie on it, and that it
    augments in each step; a name of :data:`STAGES`: the loader alone, from this stage on, with what comes before it in
    memory (``fetch``: all of it, the files in the page cache); ``with_accelerator``: all of it, into the accelerator;
    ``reading``: reading files in the page cache and nothing else; ``cold``: the loader alone, the files not in the page
    cache; ``storage``: reading such files and nothing else.
    """
    samples_per_s: float
    """Rate at which it runs: of the loader alone, as fast as it can."""
    rate_ci95: tuple[float, float]
    """95 % confidence interval of its mean over the blocks."""
    cpu_s_per_1000_samples: float | None
    """CPU time of loading, per 1000 samples; ``None``: it was not measured."""
    cpu_ci95: tuple[float, float] | None
    """95 % confidence interval of its mean over the blocks."""
    cores_used: float | None
    """Cores that it takes at this rate."""
    bytes_per_sample: float | None = None
    """Read from storage per sample."""
    measurements: int = 0
    """How often it was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """What a stage adds to the loader without it."""

    stages: tuple[str, ...]
    """Names of :data:`STAGES`; several where they cannot be measured apart."""
    cpu_s_per_1000_samples: float
    """CPU time per 1000 samples; of ``fetch`` alone where that was measured. Below zero where chance makes it so."""
    ci95: tuple[float, float]
    """95 % confidence interval of it."""
    samples_per_s: float
    """Rate of the loader alone, from this stage on."""
    rate_ci95: tuple[float, float]
    """95 % confidence interval of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that would lift the rate."""

    change: str
    """What to do, for a person."""
    samples_per_s: float
    """The rate that it would bring, the accelerator's own limit included."""
    how: str
    """``measured``: in this run or in the sweep; ``predicted``: from the costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where the time of a loader goes, and what sets its pace."""

    candidate: Candidate
    parts: tuple[Part, ...]
    """All that was measured."""
    stages: tuple[StageCost, ...]
    """Those of the loader, in the order in which a sample passes them."""
    closes_frac: float | None
    """By which share CPU times that were measured apart (reading alone, and the loader from decoding on with the files
    in memory; of a loader that cannot be divided all of it alone) differ together from that of the whole loader beside
    the accelerator; ``None``: one of them was not measured."""
    bound_by: str
    """What sets the pace: a name of :data:`pipetune.explaining.verdict.LIMITS`."""
    bound_stage: str | None
    """The stage that takes most of what is short; ``None``: no stage does."""
    sentence: str
    """The same in words."""
    evidence: tuple[str, ...]
    """The figures that it rests on."""
    remedies: tuple[Remedy, ...]
    """What would lift the rate, the cheapest change first; ``()``: nothing would, or nothing needs to."""
    notes: tuple[str, ...] = ()
    """What else a reader has to know, and what could not be measured."""

    def part(self, name: str) -> Part | None:
        """What was measured under this name."""
        return next((part for part in self.parts if part.name == name), None)
