"""``pipetune.pack``: a data set rewritten, from a notebook or a script."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.records.pack import PackRun

if TYPE_CHECKING:
    from pipetune.packing.prepare import PackObserver


def pack(
    source: str | Path,
    out: str | Path,
    *,
    format: str = "webdataset",
    shorter_edge: int | None = None,
    longer_edge: int | None = None,
    lossless: bool = False,
    quality: int | None = None,
    subsampling: str | None = None,
    upright: bool = False,
    enlarge: bool = False,
    shard_size: str | int = "256MB",
    shuffle: int | None = 0,
    validation: str | float | None = None,
    min_per_class: int = 1,
    threads: int | None = None,
    plan: bool = False,
    resume: bool = False,
    verify: str = "sample",
    crop: int = 224,
    sizes: Sequence[int | str] | None = None,
    model: str | None = None,
    device: str | None = None,
    candidate: str | None = None,
    compile: bool = False,
    progress: bool = True,
) -> tuple[PackRun, ...]:
    """Rewrite a data set, once, so that the loader keeps up::

        (packed,) = pipetune.pack("/data/photos", "/data/packed", shorter_edge=256)
        packed.plan.fidelity, packed.result.total_bytes
        run = pipetune.sweep(packed.folder)

    The arguments are the options of ``pipetune pack``; ``pipetune pack --help`` says what each means.

    Args:
        source: a folder with a folder for each class, or shards.
        out: the folder of the pack, new or empty.
        shard_size: bytes, or a text such as ``"1GB"``.
        shuffle: seed of the order; ``None``: class by class, as the folder is.
        threads: as many as there are usable cores unless given.
        plan: say what the pack will be, and write nothing.
        crop: edge of the training crops that the plan speaks of (px).
        sizes: several packs at once, such as ``(160, 352, "as-is")``.
        model: measure a training with the sources and with the pack, too, as with ``device`` or ``candidate``.
        progress: show how far it is.

    Returns:
        One; with ``validation`` the training images and those for validation; with ``sizes`` so of each.

    Raises:
        UsageError: an argument that cannot be used, named as the command's option.
        MissingPackageError: a package that the pack needs is not there.
        PipetuneError: an image cannot be read now, or the disk refuses; ``resume=True`` goes on.
    """
    from pipetune.machine.host import usable_cores
    from pipetune.packing import run
    from pipetune.packing.formats.table import format_of
    from pipetune.packing.gain import gain_options
    from pipetune.packing.options import PackOptions, what_is_done
    from pipetune.packing.prepare import PackObserver
    from pipetune.units import parse_bytes

    cores, raw = usable_cores(), format_of(format).holds_pixels
    pixels, several = what_is_done(
        sizes=None if sizes is None else ",".join(map(str, sizes)), shorter_edge=shorter_edge, longer_edge=longer_edge,
        lossless=lossless, as_is=False, quality=quality, subsampling=subsampling, upright=upright, enlarge=enlarge,
        raw=raw,
    )  # fmt: skip
    options = PackOptions(
        source=str(source), out=Path(out), format=format, pixels=pixels, sizes=several,
        shard_bytes=shard_size if isinstance(shard_size, int) else parse_bytes(shard_size), shuffle=shuffle,
        validation=None if validation is None else str(validation), min_per_class=min_per_class,
        threads=max(1, int(cores)) if threads is None else threads, resume=resume, verify=verify,
    )  # fmt: skip
    gain = gain_options(model=model, device=device, candidate=candidate, crop=crop, raw=raw, compile=compile)
    shown: contextlib.AbstractContextManager[PackObserver]
    shown = _display(crop) if progress else contextlib.nullcontext(PackObserver())
    with shown as observer:
        return run.pack(options, observer, cores=cores, crop=crop, plan=plan, gain=gain)


def _display(crop: int) -> contextlib.AbstractContextManager[PackObserver]:
    from rich.console import Console

    from pipetune.report.terminal.pack_live import Display

    console = Console(file=sys.stderr)
    return Display(console, console, crop)
