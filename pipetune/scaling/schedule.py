"""``pipetune schedule``: a training whose crops grow, phase by phase. What each phase demands, and what serves it.

Small crops are the hard part for a loader: an accelerator takes many more of them, and decoding hardly gets cheaper
unless the images are stored smaller, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipetune.accelerator.named import emulated_spec
from pipetune.answering.answer import apply, prediction_of
from pipetune.answering.base import Base, base_of
from pipetune.answering.changed import Changed, Refused
from pipetune.answering.run import misfit
from pipetune.answering.shrunken import Size
from pipetune.errors import PipetuneError, UsageError
from pipetune.records.prediction import Prediction, Question
from pipetune.records.schedule import Phase, Schedule, Setup
from pipetune.registry import loader_for
from pipetune.scaling.price import Prices, cost_of, parse_price
from pipetune.units import parse_numbers

#: Shorter edges that data sets are stored with (px).
_EDGES = (160, 192, 224, 256, 288, 320, 352, 384, 448, 512)
#: A stored image has at least this shorter edge beside the crop: 256 for 224, as evaluation has it in the published
#: recipes.
_ROOM = 256 / 224
#: A smooth minimum comes as close to the accelerator's own rate as one likes, but never to it.
_ALL = 0.99
_MOST_PHASES = 32
_PHASE = re.compile(r"\s*(\d+)\s*:\s*([0-9]*\.?[0-9]+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """The defaults are those of the command and of ``pipetune.schedule``."""

    run: Path
    """A stored explanation."""
    phases: tuple[tuple[int, float], ...]
    """Edge of the crops (px) and number of epochs."""
    demand: tuple[float, ...] = ()
    """What the accelerators take in each phase (samples/s of all); ``()``: as long on each pixel as was measured."""
    device: str | None = None
    workers: tuple[int, ...] = ()
    """To consider; ``()``: up to one for each core."""
    edges: tuple[int, ...] | None = None
    """Shorter edges of packs to consider besides images as they are; ``None``: one for each crop."""
    target: float | None = None
    images: int | None = None
    prices: Prices = field(default_factory=Prices)


def parse_phases(text: str) -> tuple[tuple[int, float], ...]:
    """``'128:18,224:22'`` -> ((128, 18.0), (224, 22.0)).

    Raises:
        UsageError: they are no sizes with epochs.
    """
    found = []
    for part in text.split(","):
        match = _PHASE.fullmatch(part)
        if match is None or not 8 <= int(match[1]) <= 4096 or not 0 < float(match[2]) < 1e6:
            raise UsageError(f"--image-sizes {part!r} is no size with its epochs", hint="write it as "
                             "--image-sizes 128:18,224:22,288:28")  # fmt: skip
        found.append((int(match[1]), float(match[2])))
    if len(found) > _MOST_PHASES:
        raise UsageError(f"--image-sizes has {len(found)} phases", hint=f"{_MOST_PHASES} are the most")
    return tuple(found)


def schedule_options(
    run: Path, *, image_sizes: str, demand: str | None, device: str | None, workers: str | None, sizes: str | None,
    target: float | None, images: int | None, price: str | None,
) -> ScheduleOptions:  # fmt: skip
    """From the command's options, as they are written.

    Raises:
        UsageError: one cannot be read.
    """
    per_hour, currency = (None, "") if price is None else parse_price("--price", price)
    return ScheduleOptions(
        run=run, phases=parse_phases(image_sizes), demand=_rates(demand) if demand else (), device=device,
        workers=parse_numbers(workers) if workers else (), target=target, images=images,
        edges=None if sizes is None else () if sizes.strip() in ("", "none") else parse_numbers(sizes),
        prices=Prices(per_hour=per_hour, currency=currency),
    )  # fmt: skip


def _rates(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--demand {text!r} is no list of rates", hint="write --demand 18000,5800,3300") from None


def schedule(chosen: ScheduleOptions) -> Schedule:
    """What each phase demands, and what serves it.

    Raises:
        UsageError: an option that cannot be used, or a run that tells too little.
    """
    _check(chosen)
    base = base_of(chosen.run, None)
    if chosen.target is not None:
        base = replace(base, target=chosen.target)
    notes: list[str] = []
    workers, edges = _workers(chosen, base), _edges(chosen, notes)
    images = chosen.images or base.images_in_all or None
    sizes: dict[int, Size] = {}
    asked = [_Asked(base, size, epochs, chosen, number, sizes)
             for number, (size, epochs) in enumerate(chosen.phases)]  # fmt: skip
    edges = _readable(min(asked, key=lambda one: one.size), edges, notes)
    common = _common(asked, workers, edges)
    phases = [_phase(one, workers, edges, common, images, chosen) for one in asked]
    now = prediction_of(apply(Question(), base), base)
    notes += misfit(base, now)
    notes += [note for one, phase in zip(asked, phases, strict=True) for note in one.notes(phase.closest.shorter_edge)]
    seconds, costs = [phase.seconds for phase in phases], [phase.cost for phase in phases]
    work = base.workload
    return Schedule(
        about=f"{work.model} on {work.dataset}, {chosen.device or work.accelerator.name}", ranks=base.ranks,
        source=base.images.root or base.images.name if base.images is not None else work.dataset,
        candidate=base.candidate.key, phases=tuple(phases), target=base.target, images=images, common=common,
        edges=tuple(sorted({phase.closest.shorter_edge for phase in phases
                            if phase.closest.shorter_edge is not None})),
        seconds=None if None in seconds else sum(one for one in seconds if one is not None),
        cost=None if None in costs else sum(one for one in costs if one is not None),
        currency=chosen.prices.currency, notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _check(chosen: ScheduleOptions) -> None:
    if chosen.demand and len(chosen.demand) != len(chosen.phases):
        raise UsageError(f"--demand has {len(chosen.demand)} rates for {len(chosen.phases)} phases",
                         hint="write one for each, in the order of --image-sizes")  # fmt: skip
    if any(not 0 < rate < math.inf for rate in chosen.demand):
        raise UsageError("--demand has a rate that is not above 0", hint="write --demand 18000,5800,3300")
    if chosen.demand and chosen.device is not None:
        raise UsageError("--demand and --device both say what the accelerators take", hint="omit one of them")
    if chosen.device is not None and emulated_spec(chosen.device.removeprefix("emulated:")).source is None:
        raise UsageError(f"--device {chosen.device} takes as many crops of any size",
                         hint="write what it takes in each phase: --demand 18000,5800,3300")  # fmt: skip
    if chosen.target is not None and not 0 < chosen.target <= 1:
        raise UsageError(f"--target {chosen.target:g} is no share above 0 and up to 1", hint="write --target 0.9")
    if chosen.images is not None and not 0 < chosen.images < 1e12:
        raise UsageError(f"--images {chosen.images} is out of range", hint="write --images 1281167")
    for edge in chosen.edges or ():
        if not 8 <= edge <= 8192:
            raise UsageError(f"--sizes {edge} is no edge in pixels", hint="write --sizes 160,256,352")
    for count in chosen.workers:
        if not 0 <= count <= 512:
            raise UsageError(f"--workers {count} is out of range", hint="write --workers 4,8")


def _workers(chosen: ScheduleOptions, base: Base) -> tuple[int, ...]:
    """Worker counts to consider, the fewest first.

    Raises:
        UsageError: the loader has no configuration without workers.
    """
    if 0 in chosen.workers and loader_for(base.candidate).min_workers:
        raise UsageError(f"--workers 0: {base.candidate.backend} needs at least one worker", hint="write --workers 1,2")
    most = max(1, math.floor(base.cores / base.ranks))
    return tuple(sorted(set(chosen.workers or (base.candidate.num_workers, *range(1, most + 1)))))


def _edges(chosen: ScheduleOptions, notes: list[str]) -> tuple[int | None, ...]:
    """Shorter edges to consider: as they are first, then the largest."""
    least = min(size for size, _ in chosen.phases)
    wanted = [_edge_for(size) for size, _ in chosen.phases] if chosen.edges is None else chosen.edges
    small = sorted(edge for edge in wanted if edge < least)
    if small:
        notes.append(f"packs of {', '.join(map(str, small))} px are smaller than all crops, and are not considered")
    return (None, *sorted({edge for edge in wanted if edge >= least}, reverse=True))


def _edge_for(size: int) -> int:
    """The usual shorter edge of images that crops of this size are drawn from (px)."""
    return next((edge for edge in _EDGES if edge >= _ROOM * size), math.ceil(_ROOM * size / 32) * 32)


def _readable(one: _Asked, edges: Sequence[int | None], notes: list[str]) -> tuple[int | None, ...]:
    """The edges; none where no image can be made smaller, to know what that brings."""
    smallest = edges[-1]
    try:
        if smallest is not None and one.allows(smallest):
            one.predict(one.setup(1, smallest))
    except PipetuneError as error:
        if isinstance(error, UsageError):
            raise
        notes.append(f"no packs are considered: {error.message}")
        return (None,)
    return tuple(edges)


class _Asked:
    """A phase, and what the model says of it with any setup."""

    def __init__(
        self, base: Base, size: int, epochs: float, chosen: ScheduleOptions, number: int, sizes: dict[int, Size]
    ) -> None:
        self.base, self.size, self.epochs = base, size, epochs
        self._device = chosen.device
        self._demand = chosen.demand[number] if chosen.demand else None
        self._sizes = sizes
        self._changed: dict[int | None, Changed] = {}

    def notes(self, edge: int | None) -> list[str]:
        """What the predictions of images with this edge rest on."""
        found = [f"crops of {self.size} px: {note}" for note in self._with_edge(edge).notes
                 if "--device emulated:RATE" not in note]  # fmt: skip
        if self._demand is None and self._device is None and self.size != self.base.workload.image_size:
            found.append(
                "the accelerators are taken to work as long on each pixel of a crop; --demand sets other rates"
            )
        return found

    def allows(self, edge: int | None) -> bool:
        """Whether the stored images are as large as the crops."""
        return edge is None or edge >= self.size

    def predict(self, setup: Setup) -> Prediction:
        """The rate with a setup."""
        changed, before = self._with_edge(setup.shorter_edge), self.base.candidate.num_workers
        factor = math.inf if (setup.workers > 0) != (before > 0) else max(1, setup.workers) / max(1, before)
        found = prediction_of(
            replace(changed, setting=replace(changed.setting, workers=setup.workers),
                    factors=[*changed.factors, factor]),
            self.base,
        )  # fmt: skip
        if setup.shorter_edge is None and setup.workers == before and self._as_measured:
            rate = self.base.measured_samples_per_s  # which needs no model
            low, high = (end * rate / found.samples_per_s for end in found.interval90)
            return replace(found, samples_per_s=rate, interval90=(low, high))
        return found

    @property
    def _as_measured(self) -> bool:
        return self.size == self.base.workload.image_size and self._demand is None and self._device is None

    def setup(self, workers: int, edge: int | None) -> Setup:
        """With what is known of its files."""
        return Setup(workers=workers, shorter_edge=edge, mean_bytes=self._with_edge(edge).file_bytes)

    def suffices(self, prediction: Prediction) -> bool:
        """Whether it reaches the target."""
        return prediction.samples_per_s >= min(self.base.target, _ALL) * prediction.demand_samples_per_s

    def _with_edge(self, edge: int | None) -> Changed:
        if edge not in self._changed:
            try:
                changed = apply(
                    Question(image_size=self.size, shorter_edge=edge, device=self._device), self.base, self._sizes
                )
            except Refused as reason:
                raise UsageError(str(reason)) from reason
            if self._demand is not None:
                changed.costs = replace(changed.costs, demand_per_s=self._demand / self.base.ranks)
                if self.base.blocking:  # the step leaves the CPU
                    changed.costs = replace(changed.costs, step_s=0.0)
                    changed.setting = replace(changed.setting, blocking=False)
            changed.demand_error = 0.0  # what is asked for is a share of the demand, whatever that is
            self._changed[edge] = changed
        return self._changed[edge]


def _phase(
    one: _Asked, workers: Sequence[int], edges: Sequence[int | None], common: Setup | None, images: int | None,
    chosen: ScheduleOptions,
) -> Phase:  # fmt: skip
    as_it_is = one.setup(one.base.candidate.num_workers, None)
    now = one.predict(as_it_is)
    setup, best, closest = common, None if common is None else one.predict(common), common
    if best is None or closest is None:
        setup, best, closest = _least(one, workers, edges)
    seconds = None if images is None else images * one.epochs / best.samples_per_s
    per_hour, size = chosen.prices.per_hour, as_it_is.mean_bytes
    return Phase(
        image_size=one.size, epochs=one.epochs, demand_samples_per_s=now.demand_samples_per_s,
        demand_bytes_per_s=None if size is None else size * now.demand_samples_per_s, now=now, setup=setup, best=best,
        closest=closest, seconds=seconds,
        cost=None if seconds is None or per_hour is None else cost_of(seconds, 1, per_hour),
    )  # fmt: skip


def _least(
    one: _Asked, workers: Sequence[int], edges: Sequence[int | None]
) -> tuple[Setup | None, Prediction, Setup]:  # fmt: skip
    """The least that suffices, or none, with what it or the closest one reaches."""
    closest: tuple[Setup, Prediction] | None = None
    for edge in edges:
        for count in workers if one.allows(edge) else ():
            setup = one.setup(count, edge)
            found = one.predict(setup)
            if one.suffices(found):
                return setup, found, setup
            if closest is None or found.samples_per_s > closest[1].samples_per_s:
                closest = setup, found
    assert closest is not None, "images as they are allow every crop"
    return None, closest[1], closest[0]


def _common(asked: Sequence[_Asked], workers: Sequence[int], edges: Sequence[int | None]) -> Setup | None:
    """The least that suffices for all phases: images as they are before packs, fewer workers before more."""
    for edge in edges:
        if not all(one.allows(edge) for one in asked):
            continue
        for count in workers:
            setup = asked[0].setup(count, edge)
            if all(one.suffices(one.predict(setup)) for one in asked):
                return setup
    return None
