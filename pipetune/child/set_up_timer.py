"""Times the stages of a candidate's set-up in its child."""

from __future__ import annotations

import time
from collections.abc import Callable

from pipetune.records.set_up import SetUp


class SetUpTimer:
    """A stopwatch: each stage lasts from the end of the one before.

    Args:
        asked_ns: when the parent asked for this process (``time.monotonic_ns``); ``None``: not known.
        clock: ns; the parent's clock.
    """

    def __init__(self, asked_ns: int | None, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._before_ns = clock()
        if asked_ns is not None:
            self._seconds["start_s"] = max(0, self._before_ns - asked_ns) / 1e9

    def end_stage(self, name: str | None = None) -> None:
        """A stage has ended, or a part of it.

        Args:
            name: of its field in :class:`SetUp`; ``None``: what was done since the stage before is none of them.
        """
        now_ns = self._clock()
        if name is not None:
            self._seconds[name] = self._seconds.get(name, 0.0) + (now_ns - self._before_ns) / 1e9
        self._before_ns = now_ns

    @property
    def set_up(self) -> SetUp:
        """The stages so far (s)."""
        return SetUp(**self._seconds)
