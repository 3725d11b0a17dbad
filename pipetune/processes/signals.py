"""Ctrl-C and SIGTERM wait while a child is born, watched and buried: an exception in the middle would lose it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from pipetune.errors import Interrupted


class Held:
    """Signals that have arrived meanwhile; whoever waits looks here and comes to an end."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.numbers)


@contextlib.contextmanager
def hold_back_signals() -> Iterator[Held]:
    """Collect SIGINT and SIGTERM during the block and deliver them to the handlers of before when it has ended.

    Handlers and no signal mask: a mask would be inherited by the child. Outside the main thread, to which Python
    delivers all signals, there is nothing to hold back.

    Raises:
        KeyboardInterrupt, Interrupted: at the end of the block, from the handler of before.
    """
    held = Held()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return

    def collect(number: int, _: FrameType | None) -> None:
        held.numbers.append(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    caught = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    try:
        for number in caught:
            signal.signal(number, collect)
        yield held
    finally:
        for number, handler in caught.items():
            signal.signal(number, handler)
        for late in held.numbers[:1]:  # the first one ends us, and a second one has nothing to add
            signal.raise_signal(late)


def stop_on_sigterm() -> None:
    """From now on SIGTERM raises :class:`Interrupted` in the main thread, once: whoever ends is ending already."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Interrupted(number)

    signal.signal(signal.SIGTERM, stop)
