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
from pipetune.measure.script.paused import tree_pss
from pipetune.measure.script.protocol import CLOSED
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
            self.failure = Failure(
                kind="error", phase=message["phase"], message=f"{message['error']}: {message['message']}",
                stderr_tail=self._session.tail(),
            )  # fmt: skip
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
            self._recording.result = {name: message.get(name, []) for name in ("epoch_starts", "apart")}


def ended(session: ScriptSession, phase: str) -> Failure:
    """The failure of a candidate during which the script, or one of its ranks, ended."""
    if session.checkpoint is not None:
        message = f"the script was ended when it was about to write {session.checkpoint}"
        return Failure(
            kind="checkpoint", phase=phase, message=message, hint="its epochs are shorter than a measurement"
        )
    code = session.exit_code
    if session.lost is not None and (code == CLOSED or not session.process_ended):
        how = "closed" if code == CLOSED else "ended, or closed"
        return Failure(
            kind="crashed", phase=phase, message=f"rank {session.lost} of the script has {how} pipetune's connection",
            hint="see its output in script.log", stderr_tail=session.tail(),
        )  # fmt: skip
    how = "ended" if not code else f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return Failure(kind="crashed" if code else "script_ended", phase=phase, message=f"the script {how}",
                   stderr_tail=session.tail())  # fmt: skip
