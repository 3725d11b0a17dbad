"""What the child sends to the parent as it goes."""

from __future__ import annotations

import time

from pipetune.measure import wire

INSTALL_TORCH = "pip install 'pipetune[torch]'"


#: Steps are sent in bundles this far apart, so that the pipe and the parent cost nothing next to a step.
SEND_EVERY_S = 0.25


class Reporter:
    """The phase we are in, told to the parent whenever it changes."""

    def __init__(self, sender: wire.Sender) -> None:
        self.sender = sender
        self.phase = "spawn"
        self.install = INSTALL_TORCH
        """What installs the package that is being imported, should that fail."""

    def enter(self, phase: str) -> None:
        """Enter a phase and report it."""
        self.phase = phase
        self.sender.send("phase", phase=phase, t_ns=time.monotonic_ns())
