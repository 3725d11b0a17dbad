"""Output of the program itself, made from a stored run when the manual is built, so that it is always today's."""

from __future__ import annotations

import textwrap
from pathlib import Path

from typer.testing import CliRunner

from pipetune.cli.app import app

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "examples"
_WIDTH = 114


def shown(name: str, *options: str) -> str:
    """What ``pipetune report`` prints of a stored example run, as a block of text.

    Args:
        name: of a run folder in :data:`FOLDER`.
        options: of ``pipetune report``.
    """
    done = CliRunner().invoke(
        app, ["report", str(FOLDER / name), *options], env={"COLUMNS": str(_WIDTH), "TERM": "dumb"}
    )
    if done.exit_code:
        raise RuntimeError(f"pipetune report {name}: {done.output}") from done.exception
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    wrapped = [part for line in lines for part in (textwrap.wrap(line, _WIDTH) if len(line) > _WIDTH else [line])]
    return "```text\n{}\n```".format("\n".join(wrapped))
