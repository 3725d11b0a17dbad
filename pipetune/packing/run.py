"""A pack from its options to its files: plan, shards, index, verification. It prints nothing; an observer is told."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pipetune.datasets.folder_walk import Progress
from pipetune.datasets.shards import find_shards, scan_shards
from pipetune.errors import PipetuneError, UsageError
from pipetune.packing.folder import (
    CLASSES,
    planning,
    refuse_folder,
    remove_parts,
    remove_unfinished,
    stored_pack,
    write_pack_file,
    writing,
)
from pipetune.packing.formats.contract import ShardRows
from pipetune.packing.formats.table import format_of
from pipetune.packing.layout import Split, mark_of, new_labels, split
from pipetune.packing.manifest import MANIFEST, PARTS, REJECTED, line_of, read_head, read_part, rows_of
from pipetune.packing.options import PackOptions, check, validation_of
from pipetune.packing.predict import predict
from pipetune.packing.shards import Pack, packed_in_order, write_shard
from pipetune.packing.sources import FolderSources, IndexedSources, Sources
from pipetune.packing.verify import verify
from pipetune.records.pack import Entry, PackPlan, PackResult, RejectedEntry
from pipetune.store.files import os_errors_as, replace_file
from pipetune.units import format_bytes

#: Free space has to suffice for so much more than what is predicted.
_ROOM = 1.05
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A pack that is laid out."""

    name: str
    """``train``, ``validation``; ``""``: there is one."""
    pack: Pack
    plan: PackPlan
    result: PackResult | None
    """Of a pack that was begun, or is complete already."""
    mark: str
    """Of the list, the seed and the options."""


def prepare(
    options: PackOptions, observer: PackObserver, *, cores: float, crop: int = 224, keep: bool = True
) -> list[Packing]:
    """List the images, lay the packs out, and predict what they will be.

    Args:
        cores: that may be used.
        crop: edge of the training crops that are spoken of (px).
        keep: make the folders, and write the plan down; otherwise nothing stays.

    Raises:
        UsageError: an option, the source or the folder cannot be used.
        MissingPackageError: a package that the pack needs is not there.
        PipetuneError: the disk refuses.
    """
    check(options)
    if not _LEAST_CROP <= crop <= _MOST_CROP:
        raise UsageError(f"--crop {crop} is no edge of a training crop", hint=f"name {_LEAST_CROP} to {_MOST_CROP}")
    refuse_folder(options)
    sources = open_sources(options.source, observer.on_stage)
    if PARTS in sources.classes:
        raise UsageError(f"{options.source!r} has a class called {PARTS}", hint="rename it")
    counts = [0] * len(sources.classes)
    for number in range(len(sources)):
        counts[sources.label(number)] += 1
    labels = new_labels(counts, options.min_per_class)
    share, per_class = validation_of(options.validation)
    splits = split(_numbers(sources, counts), labels, share=share, per_class=per_class, seed=options.shuffle)
    found = []
    for one in splits:
        found.append(_prepared(options, observer, sources, labels, one, cores=cores, crop=crop, keep=keep))
        observer.on_plan(one.name, found[-1].plan)
    return found


def _prepared(
    options: PackOptions, observer: PackObserver, sources: Sources, labels: list[int | None], one: Split, *,
    cores: float, crop: int, keep: bool,
) -> Packing:  # fmt: skip
    folder = options.out / one.name if one.name else options.out
    mark = _mark(options, sources, one)
    with contextlib.ExitStack() as stack:
        stack.enter_context(os_errors_as("write", folder))
        if keep:
            folder.mkdir(parents=True, exist_ok=True)
            # Of parts that begin at the same time, one decides how many shards there are.
            stack.enter_context(planning(folder))
        stored = stored_pack(folder, mark)
        if stored is None:
            plan = predict(
                sources, one.order, format_of(options.format), options.pixels, out=folder,
                shard_bytes=options.shard_bytes, threads=options.threads, cores=cores, crop=crop, seed=0,
                report=observer.on_stage, classes=sum(label is not None for label in labels),
            )  # fmt: skip
            stored = plan, None
            if keep:
                write_pack_file(folder, options, mark, plan, None)
    plan, result = stored
    pack = Pack(folder=folder, format=format_of(options.format), sources=sources, split=one, labels=tuple(labels),
                pixels=options.pixels, shards=plan.shards)  # fmt: skip
    return Packing(name=one.name, pack=pack, plan=plan, result=result, mark=mark)


def write(packing: Packing, options: PackOptions, observer: PackObserver) -> PackResult:
    """Write what of a pack is not there yet; where all is there then, its indices, too.

    Raises:
        UsageError: too little space is free.
        PipetuneError: another process writes it, an image cannot be read now, or the disk refuses; shards that are
            finished stay, and ``--resume`` goes on.
    """
    pack, folder = packing.pack, packing.pack.folder
    if packing.result is not None and packing.result.complete:
        with contextlib.suppress(OSError):  # a call that was killed at its very end has left them
            remove_parts(folder)
        return packing.result
    _enough_room(packing)
    with os_errors_as("write", folder), writing(folder, options.part):
        if options.part is None:
            remove_unfinished(folder, map(pack.format.shard_name, range(pack.shards)))
        wanted = [shard for shard in range(pack.shards) if options.part is None
                  or shard % options.part[1] == options.part[0]]  # fmt: skip
        missing = [shard for shard in wanted if not _is_written(pack, shard)]
        positions = [position for shard in missing for position in pack.positions(shard)]
        total, done, done_bytes = len(positions), 0, 0

        def on_image(size: int) -> None:
            nonlocal done, done_bytes
            done, done_bytes = done + 1, done_bytes + size
            observer.on_image(done, total, done_bytes)

        with contextlib.closing(packed_in_order(pack, iter(positions), options.threads)) as ready:
            for shard in missing:
                write_shard(pack, shard, ready, on_image)
        result = _finish(packing, options, observer)
        if result.complete:
            write_pack_file(folder, options, packing.mark, packing.plan, result)
            remove_parts(folder)
        return result


def open_sources(source: str, report: Progress) -> Sources:
    """The images of a folder, or of shards.

    Raises:
        UsageError: there are none.
    """
    path = os.path.expanduser(source)
    shards = find_shards(path)
    if shards:
        everything = 1 << 62
        images = scan_shards(path, shards, limit_images=everything, limit_bytes=everything, seed=0, progress=report,
                             strict=True)  # fmt: skip
        return IndexedSources(images)
    if not os.path.isdir(path):
        raise UsageError(f"no such folder: {source!r}", hint="name a folder with a folder for each class")
    return FolderSources(path, report)


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
        yield from (1, options.format, asdict(options.pixels), options.shard_bytes, options.min_per_class)
        yield from sources.classes
        for number in one.order:
            place = sources.where(number)
            yield sources.name(number), place.size, place.mtime_ns

    return mark_of(parts())


def _enough_room(packing: Packing) -> None:
    """Refuse to begin what cannot end.

    Raises:
        UsageError: less space is free than what is missing will take.
    """
    pack = packing.pack
    written = sum(_is_written(pack, shard) for shard in range(pack.shards))
    needed = packing.plan.total_bytes * _ROOM * (1 - written / pack.shards)
    free = shutil.disk_usage(pack.folder).free
    if needed > free:
        raise UsageError(
            f"{str(pack.folder)!r} has {format_bytes(free)} free, and what is missing takes about "
            f"{format_bytes(round(needed))}",
            hint="free some space and --resume, or make the images smaller: --shorter-edge 256",
        )


def _is_written(pack: Pack, shard: int) -> bool:
    """Whether a shard is there as its part says, and the part is this pack's."""
    head = read_head(pack.folder, shard)
    if head is None:
        return False
    positions = pack.positions(shard)
    if (head.shard, head.shards, head.first, head.images) != (shard, pack.shards, positions.start, len(positions)):
        return False
    if pack.format.keeps_names:
        entries = read_part(pack.folder, shard)
        return all(_has_size(pack.folder / one.file, one.length) for one in entries if isinstance(one, Entry))
    return _has_size(pack.folder / pack.format.shard_name(shard), head.bytes)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _finish(packing: Packing, options: PackOptions, observer: PackObserver) -> PackResult:
    """Count what is there, and write what belongs to all shards once none is missing.

    Raises:
        PipetuneError: no image could be packed.
    """
    pack, folder = packing.pack, packing.pack.folder
    done: Counter[str] = Counter()
    rejected = turned = size = shards = 0
    seconds = 0.0
    for shard in range(pack.shards):
        head = read_head(folder, shard)
        if head is None:
            continue
        entries = read_part(folder, shard)
        kept = [one for one in entries if isinstance(one, Entry)]
        shards, size, seconds = shards + 1, size + head.bytes, seconds + head.seconds
        rejected += len(entries) - len(kept)
        done.update(one.done for one in kept)
        turned += sum(one.orientation > 1 for one in kept)
    result = PackResult(
        images=done.total(), rejected=rejected, unusable=packing.plan.unusable, shards=shards, total_bytes=size,
        seconds=seconds, done=dict(done), turned=turned, verified=0,
        complete=shards == pack.shards and options.part is None,
    )  # fmt: skip
    if not result.complete:
        return result
    names = [name for name, label in zip(pack.sources.classes, pack.labels, strict=True) if label is not None]
    replace_file(folder / CLASSES, [json.dumps(names, ensure_ascii=True, indent=1).encode("ascii"), b"\n"])
    pack.format.write_index(folder, _rows(pack), names)
    replace_file(folder / REJECTED, _rejected(pack))
    replace_file(folder / MANIFEST, _lines(pack, Entry))
    if not result.images:
        raise PipetuneError(f"none of {rejected:,} images could be packed", hint=f"see {str(folder / REJECTED)!r}")
    return replace(result, verified=verify(folder, pack, options.verify, observer.on_stage))


def _rows(pack: Pack) -> Iterator[ShardRows]:
    for shard in range(pack.shards):
        head = read_head(pack.folder, shard)
        assert head is not None
        yield rows_of(pack.format.shard_name(shard), head, read_part(pack.folder, shard))


def _lines(pack: Pack, kind: type[Entry] | type[RejectedEntry]) -> Iterator[bytes]:
    for shard in range(pack.shards):
        yield from (line_of(one) for one in read_part(pack.folder, shard) if isinstance(one, kind))


def _rejected(pack: Pack) -> Iterator[bytes]:
    """Images that could not be packed, after those that were refused when they were listed."""
    for source, reason in pack.sources.problems:
        yield line_of(RejectedEntry(number=None, source=source, reason=reason))
    yield from _lines(pack, RejectedEntry)
