"""What the processes of a script tell of it besides measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipetune.measure.script.untrained import Untrained


@dataclass(slots=True)
class ToldOfScript:
    """What is known of one start of a script by its messages."""

    too_old: str | None = None
    """Version of a Python that is older than the hook needs."""
    untrained: Untrained | None = None
    """How far the process that came furthest was at its end; ``None``: none has ended without a recognised training."""
    checkpoint: str | None = None
    """The script has got to writing this file, and was ended there."""
    refused: str | None = None
    """Why the settings of this start cannot be applied."""
    unguarded: bool = False
    """It has no ``__main__`` guard, and a worker that was spawned has begun to train."""
    loaderless: dict[str, Any] | None = None
    """What is known of a training without a loader: see :mod:`pipetune.hook.loaderless`."""
    worker_signal: int | None = None
    """Signal that has ended a loader worker, of which the script has got an exception; ``None``: none is known."""
    complaints: list[str] = field(default_factory=list)
    loaders_made: list[str] = field(default_factory=list)
    libraries: set[str] = field(default_factory=set)
    """Libraries other than torch whose loaders the hook has seen made."""

    def take_in(self, kind: str, message: Mapping[str, Any]) -> bool:
        """Keep what a message says; whether it is one of these."""
        if kind == "too_old":
            self.too_old = str(message.get("python"))
        elif kind == "loader":
            self.loaders_made.append(f"{message.get('where')} ({message.get('dataset')})")
            if message.get("library"):
                self.libraries.add(str(message["library"]))
        elif kind == "checkpoint":
            self.checkpoint = str(message.get("target"))
        elif kind == "untrained":
            untrained = Untrained.from_message(message)
            if self.untrained is None or untrained.progress > self.untrained.progress:
                self.untrained = untrained
        elif kind == "refused":
            self.refused = str(message.get("message"))
        elif kind == "unguarded":
            self.unguarded = True
        elif kind == "lost_worker":
            number = message.get("signal")
            self.worker_signal = number if isinstance(number, int) else None
        elif kind == "loaderless":
            self.loaderless = dict(message)
        elif kind == "complaint":
            self.complaints.append(str(message.get("message")))
        else:
            return False
        return True
