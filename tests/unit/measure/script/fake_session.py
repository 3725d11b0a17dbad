"""What :class:`pipetune.measure.script.session.ScriptSession` is to those who use it, without a process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pipetune.measure.script.session import Peer, ScriptSession
from pipetune.measure.script.untrained import Untrained

READY: dict[str, Any] = {
    "type": "ready", "rank": 0, "ranks": 1, "where": "/job/train.py:40", "torch": "2.9", "device": "cpu",
    "identity": {
        "file": "/job/train.py", "function": "main", "dataset": "Images", "sampler": "RandomSampler", "ordinal": 0,
        "position": [7, 4],
    },
    "settings": {"num_workers": 2, "prefetch_factor": 2, "pin_memory": False}, "cores": [4, 4], "batch_size": 16,
    "alone_there": True, "own_generators": [], "something_newer": 1,
}  # fmt: skip


class FakeOomKills:
    """The kernel has ended so many processes for want of memory since the start."""

    def __init__(self, count: int | None) -> None:
        self._count = count

    def count_new(self) -> int | None:
        return self._count


class FakeSession:
    """Says what it is told to, whenever it is waited for."""

    def __init__(self, *script: dict[str, Any] | str, **attributes: Any) -> None:
        self.script = list(script)
        """Messages, and reasons why waiting ends."""
        self.peers: list[Peer] = []
        self.ready: list[Peer] = []
        self.too_old: str | None = None
        self.checkpoint: str | None = None
        self.untrained: Untrained | None = None
        self.early: list[tuple[Peer, dict[str, Any]]] = []
        self.error: str | None = None
        self.refused: str | None = None
        self.exit_code: int | None = None
        self.pid: int | None = os.getpid()
        self.loaders_made: list[str] = []
        self.libraries: set[str] = set()
        self.complaints: list[str] = []
        self.lost: int | None = None
        self.process_ended, self.closed, self.began_s = False, 0, 0.0
        self.sent: list[tuple[Any, str, dict[str, Any]]] = []
        self.last_lines = ""
        self.unguarded, self.loaderless, self.told_failure = False, None, False
        self.log = Path("run/script.log")
        self.worker_signal: int | None = None
        self.oom_kills = FakeOomKills(None)
        self.is_asked_to_stop: Callable[[], bool] = bool
        for name, value in attributes.items():
            setattr(self, name, value)

    @property
    def all_ready(self) -> bool:
        return bool(self.ready) and len(self.ready) >= (self.ready[0].ready or {}).get("ranks", 1)

    @property
    def trainings(self) -> int:
        return -(-len(self.ready) // (self.ready[0].ready or {}).get("ranks", 1)) if self.ready else 0

    def add(self, **ready: Any) -> Peer:
        """A rank that is ready."""
        peer = Peer(cast(Any, None), hello={"python": "3.12.1"}, ready={**READY, **ready})
        self.ready.append(peer)
        self.peers.append(peer)
        return peer

    def reached(self, kind: str) -> bool:
        return any(kind in peer.reached for peer in self.peers)

    def wait(
        self, until: Callable[[], bool], limit_s: float, on_message: Callable[[Peer, dict[str, Any]], None]
    ) -> str | None:
        while not until():
            if not self.script:
                return "limit"
            said = self.script.pop(0)
            if isinstance(said, str):
                self.process_ended = said == "ended"
                return said
            sender = said.pop("of", 0)
            on_message(self.ready[sender], said)
        return None

    def send(self, peer: Peer, kind: str, **fields: Any) -> None:
        self.sent.append((peer, kind, fields))

    def tail(self, size: int = 4096) -> str:
        return self.last_lines

    def close(self) -> None:
        self.closed += 1


def as_session(fake: FakeSession) -> ScriptSession:
    return cast(ScriptSession, fake)
