"""Writes packs that are laid out: shards, index, verification. It prints nothing; an observer is told."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipetune.errors import PipetuneError, UsageError
from pipetune.packing.folder import CLASSES, remove_parts, remove_unfinished, write_pack_file, writing
from pipetune.packing.formats.contract import ShardRows
from pipetune.packing.gain import GainOptions, measured_gains
from pipetune.packing.layout import count_empty_classes
from pipetune.packing.manifest import MANIFEST, REJECTED, line_of, read_head, read_part, rows_of
from pipetune.packing.options import PackOptions
from pipetune.packing.prepare import Packing, PackObserver, groups_of, prepare
from pipetune.packing.shard import Pack
from pipetune.packing.shards import wanted, write_shards
from pipetune.packing.verify import check_files, verify
from pipetune.records.pack import Entry, PackResult, PackRun, RejectedEntry
from pipetune.store.files import os_errors_as, replace_file
from pipetune.units import format_bytes

#: Free space has to suffice for so much more than what is predicted.
_ROOM = 1.05


def pack(
    options: PackOptions, observer: PackObserver, *, cores: float, crop: int = 224, plan: bool = False,
    gain: GainOptions | None = None,
) -> tuple[PackRun, ...]:  # fmt: skip
    """Plan packs and write them.

    Args:
        cores: that may be used.
        crop: edge of the training crops that are spoken of (px).
        plan: write nothing.
        gain: measure a training before and after, too.

    Raises:
        UsageError: an option, the source or the folder cannot be used, or too little space is free.
        MissingPackageError: a package that the pack needs is not there.
        PipetuneError: see :func:`write_together`; or the training cannot be measured.
        KeyboardInterrupt, Interrupted: asked to stop; what is finished stays.
    """
    packings = prepare(options, observer, cores=cores, crop=crop, keep=not plan, gain=gain)
    runs: dict[str, PackRun] = {}
    for group in groups_of(packings):
        results: Sequence[PackResult | None] = [None] * len(group)
        if not plan:
            results = write_together(group, options, observer)
        for one, result in zip(group, results, strict=True):
            runs[one.name] = PackRun(name=one.name, folder=str(one.pack.folder), plan=one.plan, result=result)
            observer.on_result(runs[one.name])
    if gain is not None and not plan:
        # After all is written: what cannot be measured has cost nothing then.
        _measure(groups_of(packings)[0], runs, gain, observer)
    return tuple(runs.values())


def is_complete_pack(run: PackRun) -> bool:
    """Whether all that the source holds is in the pack, each label belongs to an image, and none has changed."""
    audit, result = run.plan.audit, run.result
    if audit is not None and not audit.is_complete:
        return False
    if run.plan.unusable or run.plan.empty_classes:
        return False
    return result is None or not (result.rejected or result.unusable or result.empty_classes)


def _measure(group: Sequence[Packing], runs: dict[str, PackRun], chosen: GainOptions, observer: PackObserver) -> None:
    """Put the rates into the results, and into ``pack.json``.

    Raises:
        PipetuneError: the disk refuses.
        KeyboardInterrupt, Interrupted: asked to stop.
    """
    folders = [one.pack.folder for one in group]
    try:
        gains = measured_gains(group[0].options.source, folders, chosen, observer.on_stage)
    except PipetuneError as error:
        observer.on_warning(f"the packs are complete, and a training was not measured: {error}")
        return
    for one, gain in zip(group, gains, strict=True):
        run = runs[one.name]
        assert run.result is not None
        run = runs[one.name] = replace(run, result=replace(run.result, gain=gain))
        write_pack_file(one.pack.folder, one.options, one.mark, one.plan, run.result)
        observer.on_gain(run)


def write(packing: Packing, options: PackOptions, observer: PackObserver) -> PackResult:
    """:func:`write_together` of one."""
    (result,) = write_together([packing], options, observer)
    return result


def write_together(packings: Sequence[Packing], options: PackOptions, observer: PackObserver) -> list[PackResult]:
    """Write what is not there yet of packs of the same images; where all of one is there then, its indices, too.

    Args:
        options: that are common to them.

    Raises:
        UsageError: too little space is free.
        PipetuneError: another process writes one, an image cannot be read now, or the disk refuses; shards that are
            finished stay, and ``--resume`` goes on.
    """
    results: dict[int, PackResult] = {}
    for number, one in enumerate(packings):
        if one.result is not None and one.result.complete:
            with contextlib.suppress(OSError):  # a call that was killed at its very end has left them
                remove_parts(one.pack.folder)
            check_files(one.pack.folder)
            verified = verify(one.pack.folder, one.pack, options.verify, observer.on_stage)
            results[number] = replace(one.result, verified=verified)
    left = {number: one for number, one in enumerate(packings) if number not in results}
    with contextlib.ExitStack() as stack:
        stack.enter_context(os_errors_as("write", options.out))
        for one in left.values():
            stack.enter_context(writing(one.pack.folder, options.part))
        if options.part is None:
            for one in left.values():
                remove_unfinished(one.pack.folder, map(one.pack.format.shard_name, range(one.pack.shards)))
        _enough_room(list(left.values()))
        _write_missing([one.pack for one in left.values()], options, observer)
        failure: PipetuneError | None = None
        for number, one in left.items():
            try:
                result = results[number] = _finish(one, options, observer)
            except PipetuneError as error:
                failure = failure or error  # the others do not suffer from it
                continue
            if result.complete:
                write_pack_file(one.pack.folder, one.options, one.mark, one.plan, result)
                remove_parts(one.pack.folder)
        if failure is not None:
            raise failure
    return [results[number] for number in range(len(packings))]


def _write_missing(packs: Sequence[Pack], options: PackOptions, observer: PackObserver) -> None:
    missing = []
    for pack in packs:
        first, step = options.part or (0, 1)
        shards = range(first, pack.shards, step)
        missing.append([shard for shard in shards if not _is_written(pack, shard)])
    total = sum(len(one.positions) for one in wanted(packs, missing))
    done = done_bytes = 0

    def on_image(size: int) -> None:
        nonlocal done, done_bytes
        done, done_bytes = done + 1, done_bytes + size
        observer.on_image(done, total, done_bytes)

    if packs:
        write_shards(packs, missing, options.threads, on_image)


def _enough_room(packings: Sequence[Packing]) -> None:
    """Refuse to begin what cannot end.

    Raises:
        UsageError: less space is free than what is missing will take.
    """
    needed = 0.0
    for one in packings:
        written = sum(_is_written(one.pack, shard) for shard in range(one.pack.shards))
        needed += one.plan.total_bytes * _ROOM * (1 - written / one.pack.shards)
    for one in packings[:1]:
        free = shutil.disk_usage(one.pack.folder).free
        if needed > free:
            raise UsageError(
                f"{str(one.pack.folder)!r} has {format_bytes(free)} free, and what is missing takes about "
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
    labels: set[int] = set()
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
        labels.update(one.label for one in kept)
    result = PackResult(
        images=done.total(), rejected=rejected, unusable=packing.plan.unusable, shards=shards, total_bytes=size,
        seconds=seconds, done=dict(done), turned=turned, verified=0,
        complete=shards == pack.shards and options.part is None,
        empty_classes=count_empty_classes(labels) if pack.format.keeps_names else 0,
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
