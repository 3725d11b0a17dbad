"""What a script's processes send of one measurement, filed into its recording."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipetune.measure import failures
from pipetune.measure.conditions import Live
from pipetune.measure.messages import FROM_SCRIPT, GARBLED, GarbledError, check
from pipetune.measure.recording import Recording
from pipetune.measure.script.ended import explain_error
from pipetune.measure.script.session import Peer, ScriptSession
from pipetune.measure.session import live_of
from pipetune.measure.wire import rows_to_steps
from pipetune.records.sweep import Failure


class Arrivals:
    """Files what the ranks send of one measurement. All have the same steps, so the first rank's stand for all."""

    def __init__(self, session: ScriptSession, recording: Recording, on_live: Callable[[Live], None]) -> None:
        self._session, self._recording, self._on_live = session, recording, on_live
        self._leader = session.ready[0] if session.ready else None
        self._followers = set(map(id, session.ready[1:]))
        self.phase = "open"
        self._ranks = max(1, len(session.ready))
        self.failure: Failure | None = None
        """What the script's process has told; it goes on, and waits for the next request."""

    @property
    def done(self) -> bool:
        """The measurement is over: every rank waits, or it failed."""
        return self.failure is not None or (bool(self._recording.result) and not self._followers)

    def on_message(self, peer: Peer, message: dict[str, Any]) -> None:
        """See :meth:`pipetune.measure.script.session.ScriptSession.wait`."""
        try:
            check(message, FROM_SCRIPT)
        except GarbledError as error:
            message = {"type": GARBLED, "what": str(error)}
        kind, recording = message["type"], self._recording
        if kind == "failure":
            self.failure = explain_error(message, self._session.tail())
        elif kind == GARBLED:
            self.failure = failures.garbled(self.phase, message["what"], self._session.tail())
        elif kind == "stopped":
            self._followers.discard(id(peer))
        elif peer is not self._leader:
            return
        elif kind == "phase":
            self.phase = message["phase"]
            self._on_live(Live(phase=self.phase))
        elif kind == "first_batch":
            recording.first_batch = recording.first_batch or message
        elif kind == "steps":
            steps = [replace(step, samples=self._ranks * step.samples) for step in rows_to_steps(message["rows"])]
            (recording.timed if message["phase"] == "timed" else recording.warmup).extend(steps)
            self._on_live(live_of(message["phase"], recording))
        elif kind == "result":
            recording.result = message
            for other in self._session.ready[1:]:
                self._session.send(other, "stop", at=message["stop_at"])
