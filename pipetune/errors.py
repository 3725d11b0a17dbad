"""Everything that pipetune raises on purpose, and the exit code each one ends the command with.

::

    PipetuneError            exit 1   something failed: said in one line, with the next command to try
    ├── UsageError           exit 2   the user's mistake: a wrong path, name, number or combination
    ├── MissingPackageError  exit 2   an optional package is needed; the hint is the install command
    └── Interrupted          exit 130 Ctrl-C (143 for SIGTERM); what was measured is kept

A candidate that crashes, hangs or is killed is *not* an exception but a :class:`pipetune.records.Failure` record.
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


class Interrupted(PipetuneError):
    """The user or the system asked us to stop. ``exit_code`` is 128 + the signal's number."""

    exit_code = 130

    def __init__(self, signal_number: int = 2) -> None:
        super().__init__("interrupted")
        self.exit_code = 128 + signal_number
