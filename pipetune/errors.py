"""Everything that pipetune raises on purpose, and the exit code each one ends the command with.

::

    PipetuneError            exit 1   something failed: one line, with the next command to try
    ├── FailsAgainError      exit 1   what is measured fails by itself: to go on would fail again
    ├── UsageError           exit 2   the user's mistake: a wrong path, name, number or combination
    └── MissingPackageError  exit 2   an optional package is needed; the hint is the install command
    KeyboardInterrupt        exit 130 Ctrl-C; what was measured is kept
    └── Interrupted          exit 143 SIGTERM: the same

A candidate that crashes, hangs or is killed is *not* an exception but a :class:`pipetune.records.sweep.Failure` record.

Why ``difflib`` for mistyped names and no faster library: a few hundred names are compared, once, after a mistake.
"""

from __future__ import annotations

from collections.abc import Iterable


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


class FailsAgainError(PipetuneError):
    """What is measured fails by itself, whatever its settings are: a resumed run would fail again."""


class UsageError(PipetuneError):
    """The user's mistake."""

    exit_code = 2


class MissingPackageError(PipetuneError):
    """An optional package is not installed; ``hint`` is the exact command that installs it."""

    exit_code = 2


class PipetuneWarning(UserWarning):
    """What a user must know although nothing failed; the command line prints it in one line."""


class Interrupted(KeyboardInterrupt):
    """The system asked this process to stop, by another signal than SIGINT.

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


def nearest(wrong: str, names: Iterable[str], *, limit: int = 2, likeness: float = 0.5) -> list[str]:
    """Names that resemble a mistyped one, the most similar first.

    Args:
        wrong: what was written; its case does not count.
        names: the valid names, in lower case.
        limit: names to return at most.
        likeness: 0..1, as :class:`difflib.SequenceMatcher` measures it.
    """
    import difflib  # an error is rare, and starting has to be quick

    return difflib.get_close_matches(wrong.lower(), list(names), n=limit, cutoff=likeness)


def did_you_mean(
    wrong: str, names: Iterable[str], *, otherwise: str | None = None, prefix: str = "", limit: int = 2
) -> str:  # fmt: skip
    """The hint for a mistyped name: ``did you mean opencv or opencv-reduced?``.

    Args:
        wrong: what was written, without ``prefix``.
        names: the valid names.
        otherwise: the hint where no name resembles it; ``None``: the list of all names.
        prefix: written before each name.
        limit: names to suggest at most.
    """
    names = tuple(names)
    near = nearest(wrong, names, limit=limit)
    if near:
        return f"did you mean {' or '.join(prefix + name for name in near)}?"
    return f"choose from {', '.join(prefix + name for name in names)}" if otherwise is None else otherwise
