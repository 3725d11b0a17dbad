"""``pipetune pack``: a data set rewritten, once, so that the loader keeps up."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, cast

import typer

from pipetune.errors import UsageError, exit_code_of
from pipetune.processes.signals import stop_on_sigterm

if TYPE_CHECKING:
    from rich.console import Console

    from pipetune.report.terminal.pack_live import Display


def pack_command(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A folder with a folder for each class, or shards.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the pack: new or empty.")],
    format: Annotated[
        str, typer.Option(help="webdataset, recordio, folder, raw (pixels), mds or tfrecord.")
    ] = "webdataset",
    shorter_edge: Annotated[
        int | None, typer.Option(metavar="N", help="Make images smaller: their shorter edge becomes N px.")
    ] = None,
    longer_edge: Annotated[int | None, typer.Option(metavar="N", help="The same with their longer edge.")] = None,
    lossless: Annotated[
        bool, typer.Option("--lossless", help="Write JPEGs anew with the same coefficients, in one scan.")
    ] = False,
    as_is: Annotated[bool, typer.Option("--as-is", help="Keep each file's bytes. The default.")] = False,
    quality: Annotated[
        int | None, typer.Option(metavar="Q", help="JPEG quality of what is encoded anew. [default: 90]")
    ] = None,
    subsampling: Annotated[
        str | None, typer.Option(help="Of the colours of what is encoded anew: keep, 420, 422 or 444. [default: keep]")
    ] = None,
    upright: Annotated[
        bool, typer.Option("--upright", help="Turn pixels as the orientation tag says, and drop the tag.")
    ] = False,
    enlarge: Annotated[bool, typer.Option("--enlarge", help="Make smaller images larger, too.")] = False,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Several packs at once, each in a folder of its own: shorter edges and as-is, as 160,352,as-is.",
        ),
    ] = None,
    shard_size: Annotated[str, typer.Option(metavar="SIZE", help="About how large each shard is.")] = "256MB",
    shuffle: Annotated[
        str, typer.Option(metavar="SEED", help="Seed of the order; none: class by class, as the folder is.")
    ] = "0",
    validation: Annotated[
        str | None,
        typer.Option(metavar="PART", help="Put 0.02 of each class, or 50-per-class, into a pack of its own."),
    ] = None,
    min_per_class: Annotated[int, typer.Option(metavar="N", help="Leave out classes with fewer images.")] = 1,
    threads: Annotated[int | None, typer.Option(metavar="N", help="[default: the usable cores]")] = None,
    part: Annotated[
        str | None, typer.Option(metavar="I/N", help="Write every N-th shard; a last call without it ends the pack.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what the pack will be, and write nothing.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a pack that was begun.")] = False,
    verify: Annotated[str, typer.Option(help="Read again and compare: sample (200 images), all or none.")] = "sample",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 1 if an image, a label, or another member of a shard is not packed."),
    ] = False,
    crop: Annotated[int, typer.Option(metavar="N", help="Edge of the training crops that the plan speaks of.")] = 224,
    model: Annotated[
        str | None,
        typer.Option(help="Measure a training with the sources and with the pack, too; as for pipetune sweep."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="The same: its device, as for pipetune sweep.")] = None,
    candidate: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The same: its loader, as for pipetune explain, e.g. opencv-w2-p4-b64."),
    ] = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="The same: its model is compiled by torch.compile, as for pipetune sweep.")
    ] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write plan and result as JSON; - for standard output.")
    ] = None,
) -> None:
    """Rewrite a data set, once, so that the loader keeps up: in few large files, made smaller if you like.

    It says first how large the pack will be, how long that takes, and how close its images are. OUT gets a manifest
    with the place and the hash of each image, and the shards are the same bytes for any number of threads.
    """
    from pipetune.cli.output import check_target, echo, result_console, write_json
    from pipetune.cli.parse import value
    from pipetune.machine.host import usable_cores
    from pipetune.packing.formats.table import format_of
    from pipetune.packing.gain import gain_options
    from pipetune.packing.options import PackOptions, part_of, seed_of, what_is_done
    from pipetune.packing.run import is_complete_pack, pack
    from pipetune.units import parse_bytes

    stop_on_sigterm()
    check_target("--json", json_file, "pack.json")
    cores, raw = usable_cores(), format_of(format).holds_pixels
    pixels, several = what_is_done(
        sizes=sizes, shorter_edge=shorter_edge, longer_edge=longer_edge, lossless=lossless, as_is=as_is,
        quality=quality, subsampling=subsampling, upright=upright, enlarge=enlarge, raw=raw,
    )  # fmt: skip
    options = PackOptions(
        source=source, out=out, format=format, pixels=pixels, sizes=several,
        shard_bytes=value("--shard-size", shard_size, parse_bytes), shuffle=seed_of(shuffle), validation=validation,
        min_per_class=min_per_class, threads=threads if threads is not None else max(1, int(cores)), part=part_of(part),
        resume=resume, verify=verify, strict=strict,
    )  # fmt: skip
    if plan and resume:
        raise UsageError("--plan writes nothing, and --resume goes on writing", hint="omit one of them")
    gain = gain_options(model=model, device=device, candidate=candidate, crop=crop, raw=raw, compile=compile)
    display = _display(result_console(stderr=json_file == "-"), crop)
    try:
        with display:
            runs = pack(options, display, cores=cores, crop=crop, plan=plan, gain=gain)
    except KeyboardInterrupt as stop:
        rest = "" if plan else "; shards that are finished stay, and --resume goes on"
        echo(f"pipetune: interrupted{rest}", err=True)
        raise typer.Exit(exit_code_of(stop)) from None
    if json_file is not None:
        write_json(json_file, {"packs": [asdict(run) for run in runs]})
    raise typer.Exit(1 if strict and not all(is_complete_pack(run) for run in runs) else 0)


def _display(result: Console, crop: int) -> Display:
    from rich import console

    from pipetune.cli.streams import Lossy
    from pipetune.report.terminal import pack_live

    return pack_live.Display(console.Console(file=cast(TextIO, Lossy(sys.stderr))), result, crop)
