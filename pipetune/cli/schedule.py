"""``pipetune schedule``: a training whose crops grow, phase by phase."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def schedule_command(
    run: Annotated[Path, typer.Argument(help="The run folder of pipetune explain.")],
    image_sizes: Annotated[
        str,
        typer.Option(metavar="LIST", help="Edges of the crops, in pixels, with their epochs: 128:18,224:22,288:28."),
    ],
    demand: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="What all accelerators take in each phase, per second: 18000,5800,3300. [default: as "
            "long on each pixel as was measured]",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another accelerator: a published one, e.g. a100.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="LIST", help="Workers of each rank to consider. [default: up to one per core]")
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Shorter edges of packs to consider, in pixels, or none. [default: one for each crop]"
        ),
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Share of the accelerators' rate to reach. [default: the sweep's, or 0.9]")
    ] = None,
    images: Annotated[int | None, typer.Option(help="Images of an epoch. [default: the data set's]")] = None,
    price: Annotated[str | None, typer.Option(metavar="PRICE", help="Of this host per hour: 14.40/h.")] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
) -> None:
    """Plan a training whose crops grow: what each phase demands, which loader and packs serve it, time and cost."""
    from pipetune.cli.output import check_target, result_console, say, write_json
    from pipetune.report.line import Kind
    from pipetune.report.schedule_text import schedule_lines, schedule_table
    from pipetune.scaling.scale_json import schedule_json
    from pipetune.scaling.schedule import schedule, schedule_options

    check_target("--json", json_file, "schedule.json")
    found = schedule(schedule_options(
        run, image_sizes=image_sizes, demand=demand, device=device, workers=workers, sizes=sizes, target=target,
        images=images, price=price,
    ))  # fmt: skip
    console = result_console(stderr=json_file == "-")
    say(console, f"{found.about}; {found.candidate}")
    console.print()
    console.print(schedule_table(found, console.width))
    console.print()
    for note in found.notes:
        say(console, f"! {note}", style="yellow")
    for line in schedule_lines(found):
        say(console, line.text, style="bold" if line.kind == Kind.HEADLINE else None)
    if json_file is not None:
        write_json(json_file, schedule_json(found))
