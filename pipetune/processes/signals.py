"""SIGINT and SIGTERM: deferred while a child process runs, and turned into an exception.

An exception in the middle of starting, following or reaping a child would lose track of it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from pipetune.errors import Interrupted


class DeferredSignals:
    """Signals that have arrived and are not delivered yet. True as soon as there is one: then finish early."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.numbers)

    @property
    def exit_code(self) -> int:
        """Of a program that the first of them ends; 0: none has arrived."""
        return 128 + self.numbers[0] if self.numbers else 0

    @property
    def error(self) -> KeyboardInterrupt | None:
        """What the first of them would have raised; ``None``: none has arrived."""
        if not self.numbers:
            return None
        return KeyboardInterrupt() if self.numbers[0] == signal.SIGINT else Interrupted(self.numbers[0])


@contextlib.contextmanager
def defer_signals() -> Iterator[DeferredSignals]:
    """Collect SIGINT and SIGTERM during the block, and deliver the first to its former handler when the block ends.

    Raises:
        KeyboardInterrupt, Interrupted: at the end of the block, from the former handler.
    """
    deferred = DeferredSignals()
    try:
        with _collecting(deferred):
            yield deferred
    finally:
        for first in deferred.numbers[:1]:  # it ends the program; a second one would add nothing
            signal.raise_signal(first)


@contextlib.contextmanager
def note_signals() -> Iterator[DeferredSignals]:
    """Collect SIGINT and SIGTERM during the block, for a caller that ends soon anyway and says so itself."""
    noted = DeferredSignals()
    with _collecting(noted):
        yield noted


@contextlib.contextmanager
def _collecting(signals: DeferredSignals) -> Iterator[None]:
    """Collect SIGINT and SIGTERM that are not ignored.

    Handlers and no signal mask: a mask would be inherited by the child. Outside the main thread, to which Python
    delivers all signals, nothing is collected.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def collect(number: int, _: FrameType | None) -> None:
        signals.numbers.append(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    caught = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    try:
        for number in caught:
            signal.signal(number, collect)
        yield
    finally:
        for number, handler in caught.items():
            signal.signal(number, handler)


class _Asked:
    """What this process was asked to do since the last :func:`stop_on_sigterm`."""

    number: int | None = None


def stop_on_sigterm(*, hangup: bool = False) -> None:
    """From now on SIGTERM raises :class:`Interrupted` in the main thread; a second SIGTERM is ignored.

    Python ignores what is raised while it runs a finalizer or a weak reference's callback: :func:`raise_if_lost` says
    it once more, of Ctrl-C, too.

    Args:
        hangup: SIGHUP, too, unless it is ignored (nohup): for a command whose processes do not get it themselves.
    """
    _Asked.number = None

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        _Asked.number = number
        raise Interrupted(number)

    def interrupt(number: int, _: FrameType | None) -> None:
        _Asked.number = number
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    if hangup and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def say_nothing_of_lost_ones() -> None:
    """Python prints a traceback of what it ignores: not of a signal that :func:`raise_if_lost` says once more."""
    others = sys.unraisablehook

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if not (isinstance(ignored.exc_value, KeyboardInterrupt) and _Asked.number is not None):
            others(ignored)

    sys.unraisablehook = hook


def raise_if_lost() -> None:
    """To be called before something long begins.

    Raises:
        KeyboardInterrupt, Interrupted: this process was asked to stop, and what that raised went lost.
    """
    if _Asked.number is not None:
        raise KeyboardInterrupt if _Asked.number == signal.SIGINT else Interrupted(_Asked.number)
