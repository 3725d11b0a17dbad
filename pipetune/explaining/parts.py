"""Which parts of a pipeline are measured by themselves, and how. Pure.

The loader is measured alone, with nothing that works on its batches, so that each part runs as fast as it can. A part
that begins with a later stage finds in memory what the stages before would have made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipetune.augmentation.recipes import BASIC, DEVICE, WORKER, device_augments, loaders_recipe
from pipetune.candidates.settings import augments
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
    ON_DEVICE,
    READING,
    STAGES,
    STORAGE,
    TRANSFER,
    TRANSFORM,
    WITH_ACCELERATOR,
)
from pipetune.records.sweep import NO_MODEL, AcceleratorSpec, Candidate, Workload
from pipetune.registry import TORCH, USER, default_backend, find_backend, loader_for

#: Shortest step without an accelerator (s): a loop that takes batches at once would only count how often it can.
_LEAST_STEP_S = 0.0002
#: Files can be read from storage once, so little of them may go into the warm-up (s).
_STORAGE_WARMUP_S = 0.3
#: Samples in a large batch.
_LARGE = 256
#: Edge of the images of a loader that reads files and makes nothing of them (px): what it hands over must cost nothing.
_SMALL_PX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A part that is to be measured."""

    name: str
    """See :attr:`pipetune.records.explanation.Part.name`."""
    candidate: Candidate
    workload: Workload
    role: str = "candidate"
    """As in :class:`pipetune.records.sweep.Outcome`; ``ceiling``: kept batches take the loader's place."""
    stages: tuple[str, ...] = ()
    """What the loader does; ``()``: all."""
    beside: str | None = None
    """The part that says what the training loop itself takes, which is measured before; ``None``: it is such a part."""
    of_subset: bool = False
    """On the images of the subset; otherwise on all."""
    once: bool = False
    """Its result is the same each time."""


def parts_to_measure(
    candidate: Candidate, workload: Workload, *, subset_index: str, cold: bool
) -> tuple[Measured, ...]:  # fmt: skip
    """The parts, those first that others need.

    Args:
        candidate: the loader.
        workload: with the index of all images.
        subset_index: the index of the images of the subset.
        cold: storage is measured as well, for which files are dropped from the page cache.
    """
    # Emulated processes that do not scatter run at a rate that is known.
    spec = workload.accelerator
    fixed = spec.kind == "emulated" and not spec.scatter
    warm = replace(workload, cache="warm")
    # What the accelerator takes is measured without augmenting images there, which is a part of its own.
    plain = replace(candidate, transforms_on=WORKER)
    alone = _without_accelerator(replace(warm, index_path=subset_index), candidate)
    # A loader that starts its workers again and again would need an epoch of the subset that is long enough.
    staying = replace(candidate, persistent_workers=True)
    parts = [
        Measured(name=ACCELERATOR, candidate=plain, workload=warm, role="ceiling", once=fixed),
        Measured(name=LOOP, candidate=staying, workload=alone, role="ceiling", of_subset=True),
    ]
    decoded_there = spec.cuda_index is not None and find_backend(candidate.backend).decodes_on_cuda
    if not decoded_there and (spec.device_index is not None or spec.copy_bytes_per_s is not None):
        parts.append(Measured(name=TRANSFER, candidate=plain, workload=warm, role="ceiling", stages=(TRANSFER,),
                              beside=ACCELERATOR))  # fmt: skip
    if workload.augment != BASIC and device_augments(spec):
        there = replace(candidate, transforms_on=DEVICE)
        parts.append(Measured(name=ON_DEVICE, candidate=there, workload=warm, role="ceiling", beside=ACCELERATOR,
                              once=fixed))  # fmt: skip
    augmenting = augmenting_stages(candidate, workload.augment)
    for first in first_stages(candidate, workload.augment):
        # Of a loader of the user's own, which has no index, the images of the subset are drawn in the child.
        every = [stage for stage in STAGES if stage not in AUGMENTING or stage in augmenting]
        stages = () if first == FETCH and loader_for(candidate).name != USER else tuple(every[every.index(first) :])
        parts.append(Measured(name=first, candidate=staying, workload=alone, stages=stages, beside=LOOP,
                              of_subset=True))  # fmt: skip
    parts.append(Measured(name=WITH_ACCELERATOR, candidate=candidate, workload=workload, beside=ACCELERATOR))
    if loader_for(candidate).name != USER:
        reading = replace(alone, image_size=_SMALL_PX)
        parts.append(Measured(name=READING, candidate=_reader_like(candidate), workload=reading, stages=(FETCH,),
                              beside=LOOP, of_subset=True))  # fmt: skip
    if cold:
        from_storage = _without_accelerator(replace(workload, cache="cold"), candidate)
        parts.append(Measured(name=COLD, candidate=candidate, workload=from_storage, beside=LOOP))
        read_only = replace(
            from_storage, image_size=_SMALL_PX, warmup_limit_s=_STORAGE_WARMUP_S, seconds=min(1.0, workload.seconds)
        )
        parts.append(Measured(name=STORAGE, candidate=_reader_like(candidate), workload=read_only, stages=(FETCH,),
                              beside=LOOP))  # fmt: skip
    return tuple(parts)


def augmenting_stages(candidate: Candidate, recipe: str) -> tuple[str, ...]:
    """The stages of :data:`pipetune.records.explanation.AUGMENTING` that a loader has; ``()``: it augments nothing."""
    if not augments(candidate) or loaders_recipe(candidate, recipe) == BASIC:
        return ()
    return (AUGMENT,) if candidate.transfer == "uint8" else AUGMENTING


def first_stages(candidate: Candidate, recipe: str = BASIC) -> tuple[str, ...]:
    """Stages that the loader can begin with, the last one first; ``fetch`` alone where it cannot be divided.

    Of a loader of the user's own it is not known before it is tried.

    Args:
        recipe: what is done to the images, a name in :data:`pipetune.augmentation.recipes.RECIPES`.
    """
    if loader_for(candidate).name == USER:
        return (HAND_OVER, COLLATE, TRANSFORM, DECODE, FETCH)
    loader = loader_for(candidate)
    if loader.has_decoder:
        return (FETCH,)
    if loader.only_named:  # it decodes whole batches, and hands over none that is not decoded
        return (DECODE, FETCH)
    found = [HAND_OVER]
    if not candidate.in_place:
        found.append(COLLATE)
    found += reversed(augmenting_stages(candidate, recipe))
    if find_backend(candidate.backend).decodes_whole:
        found.append(TRANSFORM)
    return (*found, DECODE, FETCH)


def _without_accelerator(workload: Workload, candidate: Candidate) -> Workload:
    """The same with something that takes each batch, on the same device, and does nothing with it."""
    spec = workload.accelerator
    if spec.device_index is None:
        # How large the batches of a loader of the user's own are is not always known.
        size = candidate.batch_size if loader_for(candidate).name != USER else max(_LARGE, candidate.batch_size)
        spec = AcceleratorSpec(kind="emulated", name="no accelerator", rate_samples_per_s=size / _LEAST_STEP_S)
    return replace(workload, accelerator=spec, model=NO_MODEL, sync="none")


def _reader_like(candidate: Candidate) -> Candidate:
    """A loader that reads files with as many workers, in a way that takes little else."""
    loader = loader_for(candidate)
    if loader.has_decoder or loader.only_named:
        return Candidate(
            backend=default_backend(), num_workers=candidate.num_workers, prefetch_depth=candidate.prefetch_depth,
            batch_size=candidate.batch_size, reuse_buffers=True,
        )  # fmt: skip
    return replace(candidate, reuse_buffers=candidate.loader == TORCH, persistent_workers=True)
