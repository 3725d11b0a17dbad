"""The command ``pipetune``: its subcommands and what they have in common."""

from __future__ import annotations

from typing import Annotated

import typer

from pipetune.cli.compare import compare_command
from pipetune.cli.doctor import doctor_command
from pipetune.cli.explain import explain_command
from pipetune.cli.pack import pack_command
from pipetune.cli.report import report_command
from pipetune.cli.run import run_command
from pipetune.cli.sweep import sweep_command
from pipetune.cli.watch import watch_command
from pipetune.cli.whatif import whatif_command
from pipetune.version import __version__

# No rich markup in help texts: rendering them with rich would double the time that --help takes.
app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
# click cuts a first sentence that does not fit in 80 columns: these do.
app.command("sweep", short_help="Find the cheapest input pipeline that keeps the GPU fed.")(sweep_command)
app.command("run", short_help="Train your script with what its sweep has found.")(run_command)
app.command("watch", short_help="Name what a running training job waits for.")(watch_command)
app.command("explain", short_help="Say where the time of a loader goes, and what would lift it.")(explain_command)
app.command("whatif", short_help="Predict the rate with other cores, disks, GPUs or images.")(whatif_command)
app.command("pack", short_help="Rewrite a data set so that the loader keeps up.")(pack_command)
app.command("report", short_help="Show a run on the screen, or as HTML, Markdown, CSV or a trace.")(report_command)
app.command("compare", short_help="Say what changed between two runs.")(compare_command)
app.command("doctor", short_help="Check this machine; install a missing decoder.")(doctor_command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pipetune {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find out what starves your GPU, and the cheapest input pipeline that feeds it."""
