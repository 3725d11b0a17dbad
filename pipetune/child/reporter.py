"""Reporter: sends the parent the phase that the child is in."""

from __future__ import annotations

import time

from pipetune.measure import wire

INSTALL_TORCH = "pip install 'pipetune[torch]'"
#: Time between two bundles of steps that are sent (s), so that pipe and parent cost nothing beside a step.
SEND_EVERY_S = 0.25


class Reporter:
    """The child's phase, sent to the parent whenever it changes."""

    def __init__(self, sender: wire.Sender) -> None:
        self.sender = sender
        self.phase = "spawn"
        self.install = INSTALL_TORCH
        """The command that installs the package that is being imported, for the hint if the import fails."""

    def enter(self, phase: str) -> None:
        """Enter a phase and report it."""
        self.phase = phase
        self.sender.send("phase", phase=phase, t_ns=time.monotonic_ns())
