"""``pipetune doctor``: check the machine and print the findings, or build a decoder that pip cannot install."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from pipetune.errors import UsageError, exit_code_of
from pipetune.processes.signals import stop_on_sigterm

if TYPE_CHECKING:
    from rich.console import Console

    from pipetune.doctor.findings import Finding

_STYLES = {"ok": None, "note": None, "warning": "yellow", "missing": "red"}
#: State -> its mark, and the mark before a hint; the second set is for terminals that know ASCII only.
_MARKS = {"ok": "✓", "note": "·", "warning": "!", "missing": "✗", "hint": "→"}
_ASCII_MARKS = {"ok": "+", "note": "-", "warning": "!", "missing": "x", "hint": "->"}


def doctor_command(
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the findings as JSON; - for standard output.")
    ] = None,
    install: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Build a decode backend that pip cannot install: pillow-simd, jpeg-roi."),
    ] = None,
) -> None:
    """Check this machine: what it has and what pipetune can use on it."""
    if install is not None and json_file is not None:
        raise UsageError("--json and --install cannot be combined", hint="run one after the other")
    stop_on_sigterm()
    try:
        if install is not None:
            _install(install)
        else:
            _examine(json_file)
    except KeyboardInterrupt as stop:  # typer would call it "Aborted!"
        typer.echo("pipetune: interrupted", err=True)
        raise typer.Exit(exit_code_of(stop)) from None


def _examine(json_file: str | None) -> None:
    from rich.console import Console

    from pipetune.cli.output import check_target, write_json
    from pipetune.doctor.checkup import examine, to_json

    check_target("--json", json_file, "doctor.json")
    checkup = examine()
    # Where the JSON goes to standard output, the text for people goes to standard error.
    print_findings(Console(stderr=json_file == "-"), checkup.findings)
    if json_file is not None:
        write_json(json_file, to_json(checkup))


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """Print the findings by topic, and how many there are of each state."""
    from rich.text import Text

    from pipetune.report.terminal.signs import clean_lines

    # Without a terminal nothing is wrapped, so that a finding in a file is one line.
    width = console.width if console.is_terminal else None
    for line, style in text_lines(tuple(findings), width, ascii_only=not console.encoding.startswith("utf")):
        console.print(Text(clean_lines(line), style=style or ""), soft_wrap=True)


def text_lines(
    findings: tuple[Finding, ...], width: int | None, *, ascii_only: bool = False
) -> Iterator[tuple[str, str | None]]:
    """The lines to print, each with its style.

    Args:
        findings: those of a topic follow each other.
        width: of the terminal (characters); words are never cut. ``None``: nothing is wrapped.
        ascii_only: the marks are ASCII characters.
    """
    marks = _ASCII_MARKS if ascii_only else _MARKS
    column = max(len(finding.name) for finding in findings) + 2
    topic = ""
    for finding in findings:
        if finding.topic != topic:
            if topic:
                yield "", None
            topic = finding.topic
            yield topic, "bold"
        start = f"  {marks[finding.state]} {finding.name:{column}}"
        for line in _wrapped(finding.value, start, width):
            yield line, _STYLES[finding.state]
        if finding.hint is not None:
            for line in _wrapped(finding.hint, f"    {marks['hint']} ", width):
                yield line, None
    yield "", None
    yield ", ".join(_counted(state, [finding.state for finding in findings].count(state)) for state in _STYLES), "bold"


def _counted(state: str, count: int) -> str:
    return f"{count} {state}{'s' if count != 1 and state in ('note', 'warning') else ''}"


def _wrapped(text: str, start: str, width: int | None) -> list[str]:
    text = " ".join(text.split())  # a value of an environment variable may have more than one line
    if width is None:
        return [start + text]
    lines = textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return lines or [start]


def _install(name: str) -> None:
    from pipetune.cli.output import echo
    from pipetune.install.find import PILLOW_SIMD
    from pipetune.install.jpeg_roi import install_jpeg_roi
    from pipetune.install.pillow_simd import install_pillow_simd
    from pipetune.registry import find_backend

    backend = find_backend(name)
    if not backend.install.startswith("pipetune "):
        raise UsageError(f"{name} is installed by pip", hint=f"run: {backend.install}")

    def report(line: str) -> None:
        echo(line, err=True)

    if backend.name == PILLOW_SIMD:
        done = install_pillow_simd(report)
        what, built = f"{done.pillow.name} in {done.pillow.folder}", done.built
    else:
        compiled, built = install_jpeg_roi(report)
        what = f"{compiled.name} in {compiled.path}"
    echo(f"installed {what}" if built else f"{what} is installed already: nothing to do")
