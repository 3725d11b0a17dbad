"""``pipetune scale``: rates, efficiency, time and cost over accelerators and hosts, measured and predicted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipetune.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from pipetune.records.scaling import Scaling
    from pipetune.scaling.accuracy import Reach


def scale_command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Run folders of pipetune sweep with different --ranks, or an array's."),
    ] = None,
    table: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Rates of your own: CSV with columns accelerators, hosts, samples_per_s."),
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(metavar="KEY", help="Which loader of each run. [default: the recommended one]")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Numbers of accelerators to predict. [default: doublings up to 256]"),
    ] = None,
    per_host: Annotated[
        int | None, typer.Option(help="Accelerators in each host. [default: the most that one host had]")
    ] = None,
    images: Annotated[int | None, typer.Option(help="Images of an epoch. [default: the data set's]")] = None,
    epochs: Annotated[float | None, typer.Option(help="Epochs of the training.")] = None,
    price: Annotated[str | None, typer.Option(metavar="PRICE", help="Of a host per hour: 14.40/h.")] = None,
    spot: Annotated[
        str | None, typer.Option(metavar="PRICE", help="Of a host that can be taken away at any time: 1.60/h.")
    ] = None,
    interruptions: Annotated[
        str | None, typer.Option(metavar="SHARE", help="With --spot: hosts that are taken away per hour: 5%/h.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With --interruptions: time between checkpoints. [default: an epoch]"),
    ] = None,
    restart: Annotated[
        str, typer.Option(metavar="TIME", help="With --interruptions: from a loss until the training goes on.")
    ] = "5m",
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="[N=]FILE", help="What a training with N accelerators has written: CSV or JSON lines."),
    ] = None,
    metric_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which of its columns. [default: the only one]")
    ] = None,
    reach: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="With --metric: values, and when each is reached: 0.75. '<=0.5' or '>=0.75' where the metric's name "
            "does not say what is better.",
        ),
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write one self-contained HTML page; - for standard output.")
    ] = None,
) -> None:
    """Compare numbers of accelerators and hosts: rate, efficiency, time and cost, measured and predicted."""
    from pipetune.cli.output import check_figures, check_target, result_console, write_json, write_text
    from pipetune.scaling.price import prices_of
    from pipetune.scaling.scale import ScaleOptions, scale
    from pipetune.scaling.scale_json import scale_json
    from pipetune.units import parse_numbers

    check_target("--json", json_file, "scale.json")
    check_target("--html", html, "scale.html")
    check_figures("--html", html)
    if json_file == "-" and html == "-":
        raise UsageError("--json and --html cannot share standard output", hint="name a FILE for one of them")
    found = scale(ScaleOptions(
        runs=tuple(runs or ()), tables=tuple(table or ()), candidate=candidate, per_host=per_host, images=images,
        epochs=epochs, to=() if to is None else parse_numbers(to),
        prices=prices_of(price, spot, interruptions, checkpoint, restart),
        metrics=tuple(map(_metric, metric or ())), metric_name=metric_name, reach=_values(reach),
    ))  # fmt: skip
    print_scaling(result_console(stderr="-" in (json_file, html)), found)
    if json_file is not None:
        write_json(json_file, scale_json(found))
    if html is not None:
        from pipetune.report.html.build import scaling_page

        write_text(html, [scaling_page(found, result=scale_json(found))])


def _metric(text: str) -> tuple[int | None, Path]:
    """``'8=run/metrics.csv'`` -> 8 and the file; a file alone has no number."""
    found = re.fullmatch(r"(\d+)=(.+)", text)
    if found is None:
        return None, Path(text)
    if int(found[1]) < 1:
        raise UsageError(f"--metric {text} has no accelerators", hint="write --metric 8=FILE")
    return int(found[1]), Path(found[2])


def _values(text: str | None) -> tuple[Reach, ...]:
    from pipetune.scaling.accuracy import parse_reach

    if text is None:
        return ()
    try:
        return tuple(dict.fromkeys(map(parse_reach, text.split(","))))
    except ValueError:
        raise UsageError(f"--reach {text!r} is no list of numbers", hint="write --reach 0.75") from None


def print_scaling(console: Console, found: Scaling) -> None:
    """The tables, what they rest on, and what matters most last."""
    from pipetune.cli.output import say
    from pipetune.report.scale_text import (
        LEGEND,
        headline_of,
        lost_line,
        price_line,
        tables_of,
        text_table,
        time_to_lines,
    )

    if found.about:
        say(console, found.about)
    for title, columns in tables_of(found):
        console.print()
        say(console, title, style="bold")
        console.print(text_table(found.rows, columns, console.width))
    console.print()
    say(console, LEGEND, style="dim")
    for text in filter(None, (price_line(found),)):
        say(console, text, style="dim")
    for text in found.notes:
        say(console, f"! {text}", style="yellow")
    for text in time_to_lines(found):
        say(console, text)
    for text in filter(None, (headline_of(found), lost_line(found))):
        say(console, text, style="bold")
