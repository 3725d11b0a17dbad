"""Shows the other hosts, by a thread, that this one is alive, and ends what it measures where it should end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from pipetune.hosts.store import HostStore, StoreLostError

#: Time between two beats (s), and time without one after which a host is lost.
BEAT_S, LOST_S = 2.0, 20.0
#: After so long without an answer of the store the process ends, whatever it does (s): torch's calls cannot be
#: interrupted, and TCP waits for a quarter of an hour for a host whose power is gone.
GIVE_UP_S = 60.0


def beats_of(host: int) -> str:
    """The key of a host's beats."""
    return f"beats/{host}"


class Heart:
    """Beats until it is left; a context manager."""

    def __init__(
        self, store: HostStore, host: int, stopped: Callable[[], bool] = lambda: False,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """One that beats for ``host``.

        Args:
            stopped: whether this host should end what it does; asked with each beat.
            give_up: called where the store has not answered for :data:`GIVE_UP_S`.
        """
        self._store, self._host, self._stopped, self._give_up = store, host, stopped, give_up
        self._end, self._lock, self._busy = threading.Event(), threading.Lock(), False
        self._answered = time.monotonic()
        self._threads = [
            threading.Thread(target=one, name="pipetune-heart", daemon=True) for one in (self._beat, self._watch)
        ]
        self.lost: StoreLostError | None = None
        """Why there is no store any more."""
        self.told = False
        """This host was told to end."""

    def __enter__(self) -> Heart:
        self._store.count(beats_of(self._host))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(timeout=BEAT_S)

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """While this block runs, it is interrupted as by SIGTERM where this host should end.

        Raises:
            KeyboardInterrupt: it was; :attr:`lost` or :attr:`told` is set.
        """
        with self._lock:
            self._busy = True
            if self.lost or self.told:
                self._busy = False
                raise KeyboardInterrupt
        try:
            yield
        finally:
            with self._lock:
                self._busy = False

    def _beat(self) -> None:
        while not self._end.wait(BEAT_S):
            try:
                self._store.count(beats_of(self._host))
                self._answered = time.monotonic()
                told, lost = self._stopped(), None
            except StoreLostError as error:
                told, lost = False, error
            if told or lost:
                with self._lock:
                    self.told, self.lost = told, lost
                    if self._busy:
                        os.kill(os.getpid(), signal.SIGTERM)  # SIGINT is ignored in a background job
                return

    def _watch(self) -> None:
        while not self._end.wait(1.0):
            if self.lost or self.told:
                return
            if time.monotonic() - self._answered > GIVE_UP_S:
                self._give_up()
                return
