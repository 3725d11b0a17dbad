"""Everything that pipetune raises on purpose, and the exit code each one ends the command with.

::

    PipetuneError            exit 1   something failed: said in one line, with the next command to try
    ├── UsageError           exit 2   the user's mistake: a wrong path, name, number or combination
    └── MissingPackageError  exit 2   an optional package is needed; the hint is the install command
    KeyboardInterrupt        exit 130 Ctrl-C; what was measured is kept
    └── Interrupted          exit 143 SIGTERM: the same

A candidate that crashes, hangs or is killed is *not* an exception but a :class:`pipetune.records.sweep.Failure` record.
"""

from __future__ import annotations


class PipetuneError(Exception):
    """A failure that is explained in one line.

    Args:
        message: what is wrong, with the value that is wrong.
        hint: the next command or setting to try; printed on the same line.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(PipetuneError):
    """The user's mistake."""

    exit_code = 2


class MissingPackageError(PipetuneError):
    """An optional package is not installed; ``hint`` is the exact command that installs it."""

    exit_code = 2


class Interrupted(KeyboardInterrupt):
    """The system asked us to stop, by another signal than Ctrl-C's.

    A ``KeyboardInterrupt``, because libraries that catch every ``Exception`` must not swallow it.

    Args:
        signal_number: ``exit_code`` is 128 + this.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number


def exit_code_of(stop: KeyboardInterrupt) -> int:
    """130 for Ctrl-C, 128 + the signal's number for another."""
    return stop.exit_code if isinstance(stop, Interrupted) else 130
