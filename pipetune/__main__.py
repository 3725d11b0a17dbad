"""``python -m pipetune``, and what the installed ``pipetune`` command calls."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from typing import Any, Protocol


class SupportsWrite(Protocol):
    """What ``print`` writes to."""

    def write(self, text: str, /) -> object:
        """Take a piece of text."""


def _refusal(error: OSError) -> str:
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return f"cannot write the output: {error.strerror}; free some space, or send it elsewhere"
    where = f" {error.filename!r}" if error.filename is not None else ""
    return f"the system refused{where}: {error.strerror or error}; see what this machine allows: pipetune doctor"


def _clean(text: str) -> str:
    """``text`` without what is none: names of files and processes are other people's."""
    from pipetune.report.terminal.signs import clean_lines

    return clean_lines(text)


def _print_notes(error: BaseException, aside: SupportsWrite) -> None:
    """What belongs to an error: files that a script wrote before it came to that."""
    for note in getattr(error, "__notes__", ()):
        print(f"pipetune: {_clean(note)}", file=aside)


def _print_warnings(aside: SupportsWrite) -> None:
    """From now on pipetune's own warnings are a line each."""
    from pipetune.errors import PipetuneWarning

    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **options: Any) -> None:
        if issubclass(category, PipetuneWarning):
            print(f"pipetune: {_clean(str(message))}", file=aside)
        else:
            others(message, category, *rest, **options)

    warnings.showwarning = show
    warnings.simplefilter("always", PipetuneWarning)


def main() -> None:
    """Run the command line; every error is one line on standard error and an exit code, never a traceback."""
    from pipetune.cli.streams import Lossy, give_up, open_missing
    from pipetune.errors import PipetuneError, exit_code_of
    from pipetune.processes.signals import say_nothing_of_lost_ones

    open_missing()
    say_nothing_of_lost_ones()
    aside = Lossy(sys.stderr)
    _print_warnings(aside)
    for stream in (sys.stdout, sys.stderr):
        # A file name may hold bytes that are no text, and a terminal may know no "±": neither may end a sweep.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    try:
        from pipetune.cli.app import app

        try:
            app()
        finally:
            sys.stdout.flush()  # a disk that is full says so here, or only after our last word
    except PipetuneError as error:
        print(f"pipetune: {_clean(str(error))}", file=aside)
        _print_notes(error, aside)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as stop:
        print("pipetune: interrupted", file=aside)
        _print_notes(stop, aside)
        sys.exit(exit_code_of(stop))
    except OSError as error:
        # Nothing more can be written there, and Python would try once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # the reader of our output has left, as `head` does
            print(f"pipetune: {_clean(_refusal(error))}", file=aside)
        sys.exit(1)
    except Exception as error:
        if os.environ.get("PIPETUNE_TRACEBACK"):
            raise
        print(
            f"pipetune: internal error: {type(error).__name__}: {_clean(str(error))}; this is a bug: run again with "
            "PIPETUNE_TRACEBACK=1 and report what it prints",
            file=aside,
        )
        _print_notes(error, aside)
        sys.exit(1)
    finally:
        give_up(sys.stderr)


if __name__ == "__main__":
    main()
