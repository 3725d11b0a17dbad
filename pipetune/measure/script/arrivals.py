"""What a script's processes send of one measurement, filed into its recording."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipetune.measure import failures
from pipetune.measure.conditions import Live
from pipetune.measure.messages import FROM_SCRIPT, GARBLED, GarbledError, check
from pipetune.measure.recording import Recording
from pipetune.measure.script.ended import explain_error
from pipetune.measure.script.paused import tree_pss
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
        self.within_epoch = True
        """The loop is within an epoch; ``False``: it evaluates, saves, or does what it does between two."""
        self._outside_s, self._outside_since_s = 0.0, 0.0
        self._resting = False
        self.pss_bytes: int | None = None
        """Memory of the script soon after it began to be measured, for one that ends by itself."""
        self._ranks = max(1, len(session.ready))
        self.failure: Failure | None = None

    @property
    def done(self) -> bool:
        """The measurement is over: every rank waits, or it failed."""
        measured = self.has_result and not self._followers
        return self.failure is not None or (measured and self._resting)

    @property
    def has_result(self) -> bool:
        """The measurement itself is over."""
        return "stop_at" in self._recording.result

    @property
    def outside_s(self) -> float:
        """Time that the loop has spent outside of its epochs until now (s)."""
        return self._outside_s + (0.0 if self.within_epoch else time.monotonic() - self._outside_since_s)

    def on_message(self, peer: Peer, message: dict[str, Any]) -> None:
        """See :meth:`pipetune.measure.script.session.ScriptSession.wait`."""
        try:
            check(message, FROM_SCRIPT)
        except GarbledError as error:
            message = {"type": GARBLED, "what": str(error)}
        kind = message["type"]
        if kind == "failure":
            session = self._session
            self.failure = explain_error(message, session.tail(), session.oom_kills.count_new())
            session.told_failure = True
        elif kind == GARBLED:
            self.failure = failures.garbled(self.phase, message["what"], self._session.tail())
        elif kind == "stopped":
            self._followers.discard(id(peer))
        elif peer is self._leader:
            self._take(peer, kind, message)

    def _take(self, peer: Peer, kind: str, message: dict[str, Any]) -> None:
        """Take in what the first rank sends, which stands for all."""
        recording = self._recording
        if kind == "resting":
            self._resting = True
        elif kind == "epoch":
            self._take_epoch(message)
        elif kind == "phase":
            self.phase = message["phase"]
            self._on_live(Live(phase=self.phase))
        elif kind == "first_batch":
            recording.first_batch = recording.first_batch or message
            if self._session.pid is not None and (peer.ready or {}).get("measures"):
                self.pss_bytes = tree_pss(self._session.pid)
        elif kind == "steps":
            steps = [replace(step, samples=self._ranks * step.samples) for step in rows_to_steps(message["rows"])]
            (recording.timed if message["phase"] == "timed" else recording.warmup).extend(steps)
            self._on_live(live_of(message["phase"], recording))
        elif kind == "result":
            recording.result = message
            for other in self._session.ready[1:]:
                self._session.send(other, "stop", at=message["stop_at"])

    def _take_epoch(self, message: dict[str, Any]) -> None:
        self._outside_s = self.outside_s
        self.within_epoch, self._outside_since_s = bool(message["within"]), time.monotonic()
        if not self.within_epoch and not self.has_result:
            self._recording.result = {
                "epoch_samples": message.get("epoch_samples"),
                **{name: message.get(name, []) for name in ("epoch_starts", "apart")},
            }
