"""The steps of a measurement on their way to the parent: several at a time, for each message costs the loop time."""

from __future__ import annotations

from collections.abc import Callable

from pipetune.hook.channel import Channel
from pipetune.measure import wire
from pipetune.records.sweep import StepTime

#: Time between two messages with steps (s).
_SEND_EVERY_S = 0.1


class Outbox:
    """Steps that were not sent yet, all of one phase."""

    def __init__(self, channel: Channel, now_ns: Callable[[], int]) -> None:
        self._channel, self._now_ns = channel, now_ns
        self._steps: list[StepTime] = []
        self._sent_ns = 0
        self.phase = ""
        """Of the steps; empty: there were none since the request."""

    def restart(self) -> None:
        """Another measurement begins; what is left of the one before is dropped."""
        self._steps, self.phase, self._sent_ns = [], "", self._now_ns()

    def add(self, step: StepTime, phase: str) -> None:
        """Take a step, and send those that have waited long enough."""
        if phase != self.phase:
            self.send()
            self.phase = phase
            self._channel.send("phase", phase=phase)
        self._steps.append(step)
        if self._now_ns() - self._sent_ns > _SEND_EVERY_S * 1e9:
            self.send()

    def send(self) -> None:
        """Send all of them."""
        if self._steps:
            self._channel.send("steps", phase=self.phase, rows=wire.steps_to_rows(self._steps))
        self._steps, self._sent_ns = [], self._now_ns()
