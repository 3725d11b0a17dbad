"""From the options of ``pipetune sweep`` to a plan: data set, device, candidates, limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from pipetune.candidates import varied
from pipetune.candidates.fit import Granted, find_obstacles, remarks
from pipetune.candidates.space import Space
from pipetune.datasets.image_notes import count_noun, list_image_notes
from pipetune.datasets.index import ImageSet
from pipetune.datasets.open_dataset import open_dataset
from pipetune.errors import UsageError
from pipetune.machine.host import Host, default_worker_counts, describe_host, refresh_memory
from pipetune.machine.nvml.processes import visible_gpu_names
from pipetune.measure.harness import Conditions
from pipetune.records.sweep import AcceleratorSpec, Candidate, Failure, Goal, Workload
from pipetune.registry import OWN, default_backend, find_backend
from pipetune.search import baseline
from pipetune.sweeping.accelerator import describe_ranks, find_accelerator
from pipetune.sweeping.options import SweepOptions, check
from pipetune.sweeping.ranks import count_ranks
from pipetune.sweeping.suitable import choose_places, suitable_backends
from pipetune.sweeping.sweep_plan import Plan
from pipetune.sweeping.unfit import UnfitCandidates
from pipetune.usercode import make_loader

#: Images of a larger set that a sweep works on, for each rank: more than any candidate reads in its measured time, and
#: few enough to be brought into the page cache before each one.
LIMIT_IMAGES = 50_000
#: The images in use may take this share of the available memory, or they could not stay in the page cache.
_MEMORY_SHARE = 4
_UNKNOWN_MEMORY = 4 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the options amount to, before anything was measured."""

    images: ImageSet
    accelerator: AcceleratorSpec
    host: Host
    space: Space
    goal: Goal
    precision: str
    budget_s: float | None
    timeout_s: float | None
    limit_bytes: int
    """The images in use may have this size together."""
    gpus: tuple[str, ...] = ()
    """Names of the GPUs that NVML shows, for a CUDA accelerator."""
    does_not_fit: tuple[tuple[Candidate, Failure], ...] = ()
    """Candidates that are skipped because this machine lacks what they need, with the reason."""
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    """Notes on what changes no answer: decoders that these images or this accelerator have no use for."""
    ranks: int = 1
    """Training processes that are measured at the same time."""

    def with_measured(self, candidates: Collection[Candidate]) -> Prepared:
        """The same where these candidates are known to fit."""
        lacking = tuple(pair for pair in self.does_not_fit if pair[0] not in candidates)
        space = replace(self.space, excluded=frozenset(candidate for candidate, _ in lacking))
        return replace(self, does_not_fit=lacking, space=space)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes with their details, and those about the images as they are now."""
        return (*self.notes, *self.details, *list_image_notes(self.images))

    @property
    def short_notes(self) -> tuple[str, ...]:
        """The same without the details."""
        return (*self.notes, *list_image_notes(self.images))


def prepare(
    chosen: SweepOptions, on_stage: Callable[[str, int, int | None], None], limit_bytes: int | None = None,
    *, on_accelerator: Callable[[AcceleratorSpec], None] = lambda spec: None,
) -> Prepared:  # fmt: skip
    """Examine the machine, the device and the data set, and work out what is to be measured.

    Args:
        on_stage: progress, see :func:`pipetune.datasets.open_dataset.open_dataset`.
        on_accelerator: is told the accelerator before the data set is read, which may take long.
        limit_bytes: of the images in use; ``None``: from the memory that is free now.

    Raises:
        UsageError: an option that does not fit them.
        PipetuneError: the data set could not be made or read.
    """
    check(chosen)
    own = chosen.dataset.startswith(make_loader.SCHEME)
    host = describe_host()
    accelerator, devices, obstacle = find_accelerator(chosen)
    names, notes = ((OWN.name,), ()) if own else varied.backends(
        chosen.backends, exact=chosen.exact, on_gpu=accelerator.kind == "cuda"
    )  # fmt: skip
    ranks = count_ranks(chosen, accelerator, devices)
    obstacle = (*obstacle, *describe_ranks(chosen, ranks, devices, accelerator.kind))
    workers = _worker_counts(chosen, host, max(ranks, devices))
    on_accelerator(accelerator)
    limit_bytes = limit_bytes or (host.memory_available_bytes or _UNKNOWN_MEMORY) // _MEMORY_SHARE
    images = (
        _no_images(chosen.dataset) if own else _open_images(chosen, host, limit_bytes, ranks * chosen.hosts, on_stage)
    )
    places, about_places = choose_places(chosen, accelerator)
    names, left_out = suitable_backends(names, images, chosen, places)
    every = ranks * chosen.hosts
    if not own and len(images.images) < every * chosen.batch_size:
        raise UsageError(
            f"{_few(images)} are fewer than a batch of {chosen.batch_size} for each of {every} ranks",
            hint=f"try --batch-size {max(1, len(images.images) // every)}, or {_more(images)}",
        )
    # Other ranks that are not measured need their share, unless the user says how many workers there may be.
    cores = host.cores_usable * (ranks / max(ranks, devices) if chosen.workers is None else 1)
    space = _space(chosen, names, workers, cores, accelerator, ranks, places)
    if own and chosen.max_shm_bytes is not None:
        notes = (*notes, "--max-shm has no effect: how large the batches of a loader of your own are is not known")
    # The batches of the user's own loader have a size that is not known beforehand.
    does_not_fit = {} if own else _does_not_fit(chosen, space, host)
    space = replace(space, excluded=frozenset(does_not_fit))
    return Prepared(
        images=images, accelerator=accelerator, host=host, space=space, limit_bytes=limit_bytes,
        gpus=visible_gpu_names(os.environ) if accelerator.kind == "cuda" else (),
        does_not_fit=tuple(does_not_fit.items()),
        goal=Goal(
            target=chosen.target, metric=chosen.target_metric,
            cheapest=chosen.cheapest, most_memory_bytes=chosen.max_ram_bytes,
            effort=chosen.effort,
        ),
        precision=_precision(chosen, accelerator), budget_s=chosen.budget_s, timeout_s=chosen.timeout_s,
        notes=(
            *chosen.remarks, *notes, *obstacle, *about_places, *remarks(space, host, os.environ),
            *(left_out if chosen.backends is not None else ()),  # who asked for a decoder is told why it is not tried
        ),
        details=left_out if chosen.backends is None else (),
        ranks=ranks,
    )  # fmt: skip


def _worker_counts(chosen: SweepOptions, host: Host, devices: int) -> tuple[int, ...]:
    """Sorted, each once; by default as many as each of ``devices`` training processes can have at the same time.

    Raises:
        UsageError: ``--max-workers`` leaves none.
    """
    wanted = default_worker_counts(host.cores_usable / devices) if chosen.workers is None else chosen.workers
    own = chosen.untuned  # like a script's own, it may be what is recommended
    counts = sorted({*wanted, *(() if own is None else (own.num_workers,))})
    left = tuple(count for count in counts if chosen.max_workers is None or count <= chosen.max_workers)
    if not left:
        raise UsageError(f"--max-workers {chosen.max_workers} leaves no worker count", hint="write --max-workers 8")
    return left


def _open_images(
    chosen: SweepOptions, host: Host, limit_bytes: int, ranks: int, on_stage: Callable[[str, int, int | None], None]
) -> ImageSet:
    images = open_dataset(
        chosen.dataset, seed=chosen.seed, limit_images=ranks * LIMIT_IMAGES, limit_bytes=limit_bytes,
        workers=max(1, round(host.cores_usable)), progress=on_stage,
    )  # fmt: skip
    if len(images.images) < chosen.batch_size:
        are = "is" if len(images.images) == images.usable_count == 1 else "are"
        raise UsageError(
            f"{_few(images)} {are} fewer than a batch of {chosen.batch_size}",
            hint=f"try --batch-size {len(images.images)}, or {_more(images)}",
        )
    return images


def _few(images: ImageSet) -> str:
    """How many images there are to measure on, and why not more."""
    count = count_noun(len(images.images), "image", "images")
    if images.usable_count <= len(images.images):
        return count
    return f"the {count} (of {images.usable_count:,}) that a quarter of the available memory can hold"


def _more(images: ImageSet) -> str:
    """What would make them enough."""
    return "more memory" if images.usable_count > len(images.images) else "more images"


def _space(
    chosen: SweepOptions, names: tuple[str, ...], workers: tuple[int, ...], cores: float, accelerator: AcceleratorSpec,
    ranks: int, places: tuple[str, ...],
) -> Space:  # fmt: skip
    own, on_gpu = names == (OWN.name,), accelerator.kind == "cuda"
    as_it_is = chosen.untuned
    prefetch = tuple(sorted({*chosen.prefetch, *(
        (as_it_is.prefetch_depth,) if as_it_is is not None and as_it_is.num_workers else ()
    )}))  # fmt: skip
    taken = make_loader.arguments_in(chosen.dataset) if own else make_loader.ARGUMENTS
    space = Space(
        backends=names, workers=workers, prefetch=prefetch if "prefetch_factor" in taken else prefetch[:1],
        batch_size=chosen.batch_size, pin_memory=on_gpu and "pin_memory" in taken,
        settings=varied.settings(chosen.vary, chosen.fix, backends=names, on_gpu=on_gpu, places=places),
        default_backend=OWN.name if own else default_backend(), usable_cores=cores, untuned=chosen.untuned, ranks=ranks,
        accelerator_decodes=tuple(name for name in names if on_gpu and find_backend(name).decodes_on_cuda),
    )  # fmt: skip
    if not any(space.workers_of(name) for name in names):
        counts = ",".join(map(str, workers))
        raise UsageError(f"--workers {counts} leaves no candidate", hint=f"{names[0]} needs at least 1")
    return space


def _does_not_fit(chosen: SweepOptions, space: Space, host: Host) -> dict[Candidate, Failure]:
    # The default is measured in any case: gains are stated against it.
    points = [point for point in space.grid() if point != baseline(space)]
    return find_obstacles(points, chosen.image_size, _within_limits(host, chosen), space.ranks, _granted(chosen))


def _unfit(chosen: SweepOptions, prepared: Prepared) -> UnfitCandidates:
    def find(candidates: Collection[Candidate], host: Host) -> dict[Candidate, Failure]:
        return find_obstacles(candidates, chosen.image_size, host, prepared.ranks, _granted(chosen))

    return UnfitCandidates(prepared.does_not_fit, find, lambda: _within_limits(refresh_memory(prepared.host), chosen))


def _granted(chosen: SweepOptions) -> Granted:
    return Granted(memory_bytes=chosen.max_ram_bytes, shm_bytes=chosen.max_shm_bytes)


def _within_limits(host: Host, chosen: SweepOptions) -> Host:
    """The host with no more memory than the user grants."""

    def less(there: int | None, granted: int | None) -> int | None:
        return there if granted is None else min(there if there is not None else granted, granted)

    return replace(
        host, memory_available_bytes=less(host.memory_available_bytes, chosen.max_ram_bytes),
        shm_free_bytes=less(host.shm_free_bytes, chosen.max_shm_bytes),
    )  # fmt: skip


def _no_images(dataset: str) -> ImageSet:
    name = dataset.removeprefix(make_loader.SCHEME)
    return ImageSet(name=dataset, root=name, classes=(), images=(), found_images=0)


def plan(chosen: SweepOptions, prepared: Prepared, index_path: str) -> Plan:
    """The plan of the sweep, once the index of images has a place."""
    workload = Workload(
        dataset=chosen.dataset, index_path=index_path, accelerator=prepared.accelerator, model=chosen.model,
        image_size=chosen.image_size, precision=prepared.precision, seconds=chosen.seconds,
        warmup_limit_s=max(4.0, 2 * chosen.seconds), cache=chosen.cache, seed=chosen.seed,
        loader_path=os.path.join(os.path.dirname(index_path), make_loader.file_of(chosen.dataset))
        if chosen.dataset.startswith(make_loader.SCHEME) else None,
        ranks=prepared.ranks, sync=chosen.sync, bind=chosen.bind, compiled=chosen.compile, augment=chosen.augment,
    )  # fmt: skip
    conditions = Conditions(
        workload=workload, paths=prepared.images.files,
        cores=frozenset(os.sched_getaffinity(0)), timeout_s=prepared.timeout_s,
    )  # fmt: skip
    return Plan(
        space=prepared.space, goal=prepared.goal, conditions=conditions, seed=chosen.seed, budget_s=prepared.budget_s,
        grid=chosen.grid, blocks=chosen.blocks, other_batches=chosen.ceilings or (),
        unfit=_unfit(chosen, prepared),
    )  # fmt: skip


def _precision(chosen: SweepOptions, accelerator: AcceleratorSpec) -> str:
    # "auto" is settled in the child, which can ask the device what it computes in.
    return "emulated" if accelerator.kind == "emulated" else chosen.precision
