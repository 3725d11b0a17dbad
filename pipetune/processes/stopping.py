"""SIGTERM ends a command as Ctrl-C does: everything is put in order first."""

from __future__ import annotations

import signal
from types import FrameType

from pipetune.errors import Interrupted


def stop_on_sigterm() -> None:
    """From now on SIGTERM raises :class:`Interrupted` in the main thread, once: whoever ends is ending already."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Interrupted(number)

    signal.signal(signal.SIGTERM, stop)
