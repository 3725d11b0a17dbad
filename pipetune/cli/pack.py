"""``pipetune pack``: a data set rewritten, once, so that the loader keeps up."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
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
    format: Annotated[str, typer.Option(help="webdataset, recordio, folder, mds or tfrecord.")] = "webdataset",
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
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if an image cannot be packed.")] = False,
    crop: Annotated[int, typer.Option(metavar="N", help="Edge of the training crops that the plan speaks of.")] = 224,
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
    from pipetune.packing.options import PackOptions, part_of, pixels_of, seed_of
    from pipetune.packing.run import prepare, write
    from pipetune.records.pack import PackRun
    from pipetune.units import parse_bytes

    stop_on_sigterm()
    check_target("--json", json_file, "pack.json")
    cores = usable_cores()
    options = PackOptions(
        source=source, out=out, format=format,
        pixels=pixels_of(
            shorter_edge=shorter_edge, longer_edge=longer_edge, lossless=lossless, as_is=as_is, quality=quality,
            subsampling=subsampling, upright=upright, enlarge=enlarge,
        ),
        shard_bytes=value("--shard-size", shard_size, parse_bytes), shuffle=seed_of(shuffle), validation=validation,
        min_per_class=min_per_class, threads=threads if threads is not None else max(1, int(cores)), part=part_of(part),
        resume=resume, verify=verify, strict=strict,
    )  # fmt: skip
    if plan and resume:
        raise UsageError("--plan writes nothing, and --resume goes on writing", hint="omit one of them")
    console = result_console(stderr=json_file == "-")
    display = _display(console, crop)
    runs: dict[str, PackRun] = {}
    try:
        with display:
            packings = prepare(options, display, cores=cores, crop=crop, keep=not plan)
            for one in packings:
                runs[one.name] = PackRun(name=one.name, folder=str(one.pack.folder), plan=one.plan, result=None)
            for one in packings if not plan else []:
                runs[one.name] = run = replace(runs[one.name], result=write(one, options, display))
                display.on_result(run)
    except KeyboardInterrupt as stop:
        echo("pipetune: interrupted; shards that are finished stay, and --resume goes on", err=True)
        raise typer.Exit(exit_code_of(stop)) from None
    if json_file is not None:
        write_json(json_file, {"packs": [asdict(run) for run in runs.values()]})
    rejected = sum(run.result.rejected + run.result.unusable for run in runs.values() if run.result is not None)
    raise typer.Exit(1 if strict and rejected else 0)


def _display(result: Console, crop: int) -> Display:
    from rich import console

    from pipetune.cli.streams import Lossy
    from pipetune.report.terminal import pack_live

    return pack_live.Display(console.Console(file=cast(TextIO, Lossy(sys.stderr))), result, crop)
