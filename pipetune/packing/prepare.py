"""From the options of a pack to its plan: images listed, packs laid out, and what they will be predicted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from pipetune.datasets.folder import throttle
from pipetune.datasets.folder_walk import Progress
from pipetune.datasets.other_kinds import describe_file, refuse_other_kinds
from pipetune.datasets.shard_names import find_shards
from pipetune.datasets.shards import scan_shards
from pipetune.datasets.splits import find_training_split
from pipetune.datasets.synthetic_cache import ensure_made, folder_of
from pipetune.datasets.synthetic_uri import SCHEME, parse_uri
from pipetune.errors import UsageError
from pipetune.explaining.subject import Subject
from pipetune.machine.host import usable_cores
from pipetune.packing.duration import remove_trials
from pipetune.packing.folder import planning, refuse_folder, refuse_others, stored_pack, write_pack_file
from pipetune.packing.formats.table import format_of
from pipetune.packing.gain import GainOptions, predicted_gains, subject_of
from pipetune.packing.layout import Split, count_empty_classes, mark_of, new_labels, split
from pipetune.packing.manifest import PARTS
from pipetune.packing.options import PackOptions, check, validation_of
from pipetune.packing.pixels import Packed
from pipetune.packing.predict import predict
from pipetune.packing.shard import Pack
from pipetune.packing.sources import FolderSources, IndexedSources, Sources
from pipetune.records.pack import Gain, PackPlan, PackResult, PackRun
from pipetune.store.files import os_errors_as

#: Edges of training crops that can be spoken of (px).
_LEAST_CROP, _MOST_CROP = 8, 2048


class PackObserver:
    """What is told while a data set is packed."""

    def on_stage(self, stage: str, done: int, total: int | None) -> None:
        """Something takes time."""

    def on_plan(self, name: str, plan: PackPlan) -> None:
        """What a pack will be."""

    def on_image(self, done: int, total: int, done_bytes: int) -> None:
        """An image was packed; bytes are the source's."""

    def on_result(self, run: PackRun) -> None:
        """A pack is written, or what of it was to be written."""

    def on_gain(self, run: PackRun) -> None:
        """A training was measured with it, too."""

    def on_warning(self, text: str) -> None:
        """Something was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A pack that is laid out."""

    name: str
    """Of several, which one: ``train``, ``validation``, ``160``, ``160 train``; ``""``: there is one."""
    pack: Pack
    options: PackOptions
    """Of this pack, as if it were packed alone."""
    plan: PackPlan
    result: PackResult | None
    """Of a pack that was begun, or is complete already."""
    mark: str
    """Of the list, the seed and the options."""


def prepare(
    options: PackOptions, observer: PackObserver, *, cores: float, crop: int = 224, keep: bool = True,
    gain: GainOptions | None = None,
) -> list[Packing]:  # fmt: skip
    """List the images, lay the packs out, and predict what they will be.

    Args:
        cores: that may be used.
        crop: edge of the training crops that are spoken of (px).
        keep: make the folders, and write the plan down; otherwise nothing stays.
        gain: measure a training, too, of which the plan says how fast it will be; of the training images alone.

    Raises:
        UsageError: an option, the source or the folder cannot be used.
        MissingPackageError: a package that the pack needs is not there.
        PipetuneError: the disk refuses, or the training cannot be measured.
    """
    check(options)
    if not _LEAST_CROP <= crop <= _MOST_CROP:
        raise UsageError(f"--crop {crop} is no edge of a training crop", hint=f"name {_LEAST_CROP} to {_MOST_CROP}")
    refuse_folder(options)
    # Whatever is wrong with the device or the loader is said before images are listed.
    subject = None
    if gain is not None:
        if options.part is not None:
            raise UsageError("--part writes a part, and a training is measured with all of it",
                             hint="name model, device or loader in the last call, without --part")  # fmt: skip
        subject = subject_of(options.source, gain, observer.on_stage)
    sources = open_sources(options.source, observer.on_stage)
    if PARTS in sources.classes:
        raise UsageError(f"{options.source!r} has a class called {PARTS}", hint="rename it")
    counts = [0] * len(sources.classes)
    for number in range(len(sources)):
        counts[sources.label(number)] += 1
    labels = new_labels(counts, options.min_per_class)
    share, per_class = validation_of(options.validation)
    splits = split(_numbers(sources, counts), labels, share=share, per_class=per_class, seed=options.shuffle)
    alone = [
        replace(options, out=options.out / name, pixels=pixels, sizes=()) for name, pixels in options.sizes
    ] or [options]  # fmt: skip
    refuse_others(options.out, [_folder(one, part) for one in alone for part in splits])
    if subject is not None and len(splits[0].order) < subject.candidate.batch_size:
        raise UsageError(
            f"{len(splits[0].order)} images to train with are fewer than a batch of {subject.candidate.batch_size}",
            hint=f"name a loader with smaller batches, e.g. --candidate pillow-w1-p2-b{len(splits[0].order) // 2 or 1}",
        )
    found: list[Packing] = []
    for part in splits:
        gains_of = None
        if gain is not None and subject is not None and not found:
            gains_of = partial(_predicted_gains, subject, sources, part, options, gain, observer)
        some = _prepared(
            options, alone, observer, sources, labels, part, cores=cores, crop=crop, keep=keep, gains_of=gains_of
        )
        for one in some:
            observer.on_plan(one.name, one.plan)
        found += some
    return found


def groups_of(packings: Sequence[Packing]) -> list[list[Packing]]:
    """Packs of the same images, which are written at the same time."""
    names = dict.fromkeys(one.pack.split.name for one in packings)
    return [[one for one in packings if one.pack.split.name == name] for name in names]


def _folder(options: PackOptions, part: Split) -> Path:
    return options.out / part.name if part.name else options.out


def _prepared(
    options: PackOptions, alone: Sequence[PackOptions], observer: PackObserver, sources: Sources,
    labels: list[int | None], part: Split, *, cores: float, crop: int, keep: bool,
    gains_of: Callable[[Sequence[Mapping[int, Packed]]], list[Gain | None]] | None,
) -> list[Packing]:  # fmt: skip
    """The packs of the same images.

    Args:
        alone: the options of each.
    """
    folders = [_folder(one, part) for one in alone]
    marks = [_mark(one, sources, part) for one in alone]
    format_ = format_of(options.format)
    with contextlib.ExitStack() as stack:
        stack.enter_context(os_errors_as("write", options.out))
        if keep:
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)
                # Of parts that begin at the same time, one decides how many shards there are.
                stack.enter_context(planning(folder, observer.on_stage))
        remove_trials(options.out)
        stored = [stored_pack(folder, mark) for folder, mark in zip(folders, marks, strict=True)]
        lacking = [number for number, one in enumerate(stored) if one is None]
        plans = predict(
            sources, part.order, format_, [alone[number].pixels for number in lacking], out=options.out,
            shard_bytes=options.shard_bytes, threads=options.threads, cores=cores, crop=crop, seed=0,
            report=observer.on_stage, classes=sum(label is not None for label in labels), gains_of=gains_of,
        ) if lacking else []  # fmt: skip
        used = {label for number in part.order if (label := labels[sources.label(number)]) is not None}
        empty_classes = count_empty_classes(used) if format_.keeps_names else 0
        for number, one_plan in zip(lacking, plans, strict=True):
            plan = replace(one_plan, empty_classes=empty_classes)
            stored[number] = plan, None
            if keep:
                write_pack_file(folders[number], alone[number], marks[number], plan, None)
    found = []
    for one, folder, mark, known in zip(alone, folders, marks, stored, strict=True):
        assert known is not None
        plan, result = known
        size = one.out.name if options.sizes else ""
        pack = Pack(folder=folder, format=format_, sources=sources, split=part, labels=tuple(labels),
                    pixels=one.pixels, shards=plan.shards)  # fmt: skip
        name = " ".join(filter(None, (size, part.name)))
        found.append(Packing(name=name, pack=pack, options=one, plan=plan, result=result, mark=mark))
    return found


def _predicted_gains(
    subject: Subject, sources: Sources, part: Split, options: PackOptions, chosen: GainOptions, observer: PackObserver,
    packed: Sequence[Mapping[int, Packed]],
) -> list[Gain | None]:  # fmt: skip
    return predicted_gains(
        subject, sources, part.order, packed, format_of(options.format), chosen, observer.on_stage
    )  # fmt: skip


def open_sources(source: str, report: Progress) -> Sources:
    """The images of a folder, of shards, or of a ``synthetic:`` data set, which is made first where it is not there.

    Raises:
        UsageError: there are none.
        PipetuneError: the synthetic images could not be made.
    """
    path = os.path.expanduser(source)
    if source.startswith(SCHEME):
        synthetic = parse_uri(source)
        ensure_made(synthetic, max(1, round(usable_cores())), throttle(report))
        path = folder_of(synthetic)
    else:
        refuse_other_kinds(source)
    shards = find_shards(path)
    if shards:
        everything = 1 << 62
        images = scan_shards(path, shards, limit_images=everything, limit_bytes=everything, seed=0, progress=report,
                             strict=True)  # fmt: skip
        if images.is_raw:
            raise UsageError(f"{source!r} is a pack of pixels, which cannot be packed again",
                             hint="pack the images that it was made of")  # fmt: skip
        return IndexedSources(images)
    if os.path.isfile(path):
        what, hint = describe_file(path)
        raise UsageError(f"{source!r} {what}", hint=hint)
    if not os.path.isdir(path):
        raise UsageError(f"no such folder: {source!r}", hint="name a folder with a folder for each class")
    split = find_training_split(path)
    if split is None:
        return FolderSources(path, report)
    sources = FolderSources(split.folder, report)
    sources.audit = split.note_in(sources.audit)
    return sources


def _numbers(sources: Sources, counts: list[int]) -> list[range]:
    """The images of each class: they stand together in both kinds of sources."""
    found, at = [], 0
    for label, count in enumerate(counts):
        found.append(range(at, at + count))
        assert not count or sources.label(at) == sources.label(at + count - 1) == label
        at += count
    return found


def _mark(options: PackOptions, sources: Sources, one: Split) -> str:
    """Of all that decides what is in the pack."""

    def parts() -> Iterator[object]:
        # The second version: labels of shards mean something else in some of them.
        yield from (2, options.format, asdict(options.pixels), options.shard_bytes, options.min_per_class)
        yield from sources.classes
        for number in one.order:
            place = sources.where(number)
            yield sources.name(number), sources.label(number), place.size, place.mtime_ns

    return mark_of(parts())
