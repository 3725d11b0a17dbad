"""The command ``pipetune``: its subcommands and what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from pipetune.cli.batch_size import batch_size_command
from pipetune.cli.compare import compare_command
from pipetune.cli.doctor import doctor_command
from pipetune.cli.explain import explain_command
from pipetune.cli.launch import launch_command
from pipetune.cli.pack import pack_command
from pipetune.cli.report import report_command
from pipetune.cli.run import run_command
from pipetune.cli.scale import scale_command
from pipetune.cli.schedule import schedule_command
from pipetune.cli.sweep import sweep_command
from pipetune.cli.watch import watch_command
from pipetune.cli.whatif import whatif_command
from pipetune.cli.with_run_file import with_run_file
from pipetune.version import __version__

# No rich markup in help texts: rendering them with rich would double the time that --help takes.
app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
#: click cuts a first sentence that does not fit in 80 columns: these do.
COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "sweep": (sweep_command, "Find the cheapest input pipeline that keeps the GPU fed."),
    "run": (run_command, "Train your script with what its sweep has found."),
    "watch": (watch_command, "Name what a running training job waits for."),
    "explain": (explain_command, "Say where the time of a loader goes, and what would lift it."),
    "whatif": (whatif_command, "Predict the rate with other cores, disks, GPUs or images."),
    "pack": (pack_command, "Rewrite a data set so that the loader keeps up."),
    "batch-size": (batch_size_command, "Find the batch size to train with on a GPU."),
    "launch": (launch_command, "Measure on the hosts of a cluster, as a job array."),
    "scale": (scale_command, "Compare numbers of GPUs and hosts: rate, time and cost."),
    "schedule": (schedule_command, "Plan a training whose crops grow: loader, packs, time, cost."),
    "report": (report_command, "Show a run on the screen, or as HTML, Markdown, CSV or a trace."),
    "compare": (compare_command, "Say what changed between two runs."),
    "doctor": (doctor_command, "Check this machine; install a missing decoder."),
}
#: Those that make a run folder or print their answer: they may run once for each combination of values in a run file.
_GRIDS = ("sweep", "explain", "whatif", "pack", "scale", "schedule", "batch-size")
for _name, (_command, _help) in COMMANDS.items():
    app.command(_name, short_help=_help)(with_run_file(_command, grid=_name in _GRIDS))


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
