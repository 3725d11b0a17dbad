"""One start of a user's script: its process, the socket that its hook speaks through, and what it says.

The folder with the socket is private (mode 0700) and new for each start.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from pipetune.machine.oom_kills import OomKills
from pipetune.measure import messages
from pipetune.measure.script.protocol import REFUSE_SAVES, RELAY, SETTINGS_FILE, SITE, VARIABLE, path_of_socket
from pipetune.measure.script.told import ToldOfScript
from pipetune.processes.signals import defer_signals, raise_if_lost
from pipetune.processes.supervised import Supervised
from pipetune.processes.temporary_folder import temporary_folder
from pipetune.protection.contract import Protection
from pipetune.protection.room import DiskNearlyFullError
from pipetune.store.files import OWN_FILE

_CHECK_S = 0.2
_TAIL_BYTES = 4096
#: Kinds of messages after which a process waits for the next request.
_WAITS_AFTER = ("resting", "failure")
#: Time that a script which waits for a request has to end by itself (s).
_END_S = 3.0
#: Time within which the command ends where one of its ranks has ended, unless that has closed our connection only (s):
#: torchrun looks after its ranks ten times a second, and ends the others.
_LOST_S = 10.0
#: Loggers that would tell a server of a run that is none. What a script sets itself is left.
QUIET = {
    "WANDB_MODE": "disabled", "WANDB_SILENT": "true", "COMET_MODE": "disabled", "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
}  # fmt: skip


@dataclass(slots=True)
class Peer:
    """One process of the script that has connected."""

    channel: socket.socket
    buffer: bytes = b""
    hello: dict[str, Any] = field(default_factory=dict)
    reached: list[str] = field(default_factory=list)
    """Kinds of its messages, in their order, each once."""
    ready: dict[str, Any] | None = None
    """What it said of the loader that it trains on."""
    was_ready: dict[str, Any] | None = None
    """The same, of one whose connection is closed."""
    closed: bool = False
    waits: bool = False
    """The process waits for a request, and obeys one at once."""


def _opened_for_us(log: Path) -> IO[bytes]:
    """The script's output, to be added to; others may not read it."""
    return open(log, "ab", opener=partial(os.open, mode=OWN_FILE))


class ScriptSession(ToldOfScript):
    """One start, from the process to its end.

    Args:
        command: as the user wrote it.
        variables: of the environment, besides this process's own.
        log: file that the script's output is appended to.
        profile: settings that its loaders get at construction; ``None``: its own.
        asked_to_stop: pipetune is to end.
        protection: keeps the user's files as they are; ``None``: a script that saves a checkpoint is ended instead.
    """

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], log: Path, profile: Mapping[str, Any] | None,
        asked_to_stop: Callable[[], bool], *, protection: Protection | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._asked_to_stop = asked_to_stop
        self._log, self._protection = log, protection
        self.began_s = time.monotonic()
        self.oom_kills = OomKills()
        """Processes that the kernel ends from this start on."""
        self.peers: list[Peer] = []
        """In the order in which they connected; those that have ended, too."""
        self._closed = False
        self.early: list[tuple[Peer, dict[str, Any]]] = []
        """Messages of a measurement that began with the loader's first batch, before anybody waited for them."""
        self.told_failure = False
        """One of its ranks has told the failure of the measurement, and waits for the next request."""
        self.process_ended = False
        self.lost: int | None = None
        """Rank of a process that trained, and has closed its connection."""
        self._lost_s = 0.0
        self._has_no_time = False
        """The script has to end at once, because it fills the disk."""
        self._ends = contextlib.ExitStack()
        self._folder = str(self._ends.enter_context(temporary_folder("script")))
        self._scratch = os.path.join(self._folder, "scratch")
        try:
            os.mkdir(self._scratch)
            if profile is not None:
                Path(self._folder, SETTINGS_FILE).write_text(json.dumps(profile), encoding="utf-8")
            self._selector = self._ends.enter_context(selectors.DefaultSelector())
            self._listener = self._ends.enter_context(socket.socket(socket.AF_UNIX))
            with path_of_socket(self._folder) as path:
                self._listener.bind(path)
            self._listener.listen(64)
            self._selector.register(self._listener, selectors.EVENT_READ)
            output = self._ends.enter_context(_opened_for_us(log))
            self._log_began = log.stat().st_size
            words = [word.replace("{scratch}", self._scratch) for word in command]
            # A command that is not there is refused as the system does it; nothing of the user's runs then.
            if protection is not None and words and shutil.which(words[0]) is not None:
                words = protection.wrap(words)
            self._process = Supervised(
                words,
                {**QUIET, "MLFLOW_TRACKING_URI": f"file:{self._scratch}", **os.environ, **variables,
                 **self._hook_variables()}, output, None if protection is None else protection.pulse_fd(),
            )  # fmt: skip
            self._ends.callback(self._process.close)
            self._selector.register(self._process, selectors.EVENT_READ)
        except BaseException:
            self._ends.close()
            raise

    def _hook_variables(self) -> dict[str, str]:
        already = os.environ.get("PYTHONPATH")
        path = SITE if not already else f"{SITE}{os.pathsep}{already}"
        variables = {REFUSE_SAVES: "1"} if self._protection is None else self._protection.variables()
        return {"PYTHONPATH": path, VARIABLE: f"{RELAY}:{self._folder}", **variables}

    @property
    def pid(self) -> int | None:
        """Of the command."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Of the command; ``None``: it runs, or was ended by us."""
        return self._process.exit_code

    @property
    def error(self) -> str | None:
        """Why the command could not be started."""
        return self._process.error

    @property
    def ready(self) -> list[Peer]:
        """The processes that train and wait, in the order of their ranks."""
        found = [peer for peer in self.peers if peer.ready is not None]
        return sorted(found, key=lambda peer: int((peer.ready or {}).get("rank", 0)))

    @property
    def all_ready(self) -> bool:
        """Every rank has said what it trains on."""
        found = self.ready
        return bool(found) and len(found) >= int((found[0].ready or {}).get("ranks", 1))

    @property
    def trainings(self) -> int:
        """Trainings that run at the same time, each on its own: processes that are no ranks of one."""
        found = self.ready
        return 0 if not found else -(-len(found) // int((found[0].ready or {}).get("ranks", 1)))

    def reached(self, kind: str) -> bool:
        """Whether any process has sent a message of this kind."""
        return any(kind in peer.reached for peer in self.peers)

    def wait(
        self, until: Callable[[], bool], limit_s: float, on_message: Callable[[Peer, dict[str, Any]], None]
    ) -> str | None:
        """Take in messages until something is so.

        Args:
            on_message: is given each message of a measurement.

        Returns:
            ``None``; or why it did not come to that: ``stopped`` (pipetune is to end), ``ended`` (the script has),
            ``lost`` (one of its ranks has, see :attr:`lost`), or ``limit``.

        Raises:
            DiskNearlyFullError: what the script writes has used up the room that its disk had.
            KeyboardInterrupt, Interrupted: see :func:`pipetune.processes.signals.raise_if_lost`.
        """
        raise_if_lost()
        deadline = time.monotonic() + limit_s
        while not until():
            if self._asked_to_stop():
                return "stopped"
            self._require_room()
            left = deadline - time.monotonic()
            if left <= 0:
                return "limit"
            if self.lost is not None and time.monotonic() - self._lost_s > _LOST_S:
                return "lost"
            for key, _ in self._selector.select(min(left, _CHECK_S)):
                self._take_in(key.fileobj, on_message, key.data)
            if self.process_ended and not until():
                self._require_room()  # or a script that met a full disk would be said to have failed by itself
                while arrived := self._selector.select(0):  # what it had sent before
                    for key, _ in arrived:
                        self._take_in(key.fileobj, on_message, key.data)
                return None if until() else "ended"
        return None

    def _require_room(self) -> None:
        if self._protection is None:
            return
        try:
            self._protection.require_room()
        except DiskNearlyFullError:
            self._has_no_time = True
            raise

    def _take_in(
        self, source: Any, on_message: Callable[[Peer, dict[str, Any]], None], peer: Peer | None = None
    ) -> None:
        if source is self._listener:
            channel, _ = self._listener.accept()
            self.peers.append(Peer(channel))
            self._selector.register(channel, selectors.EVENT_READ, self.peers[-1])
        elif source is self._process:
            if not self._process.read():
                self._selector.unregister(source)
                self.process_ended = True
        elif peer is not None:
            self._read(peer, on_message)

    def _read(self, peer: Peer, on_message: Callable[[Peer, dict[str, Any]], None]) -> None:
        try:
            data = peer.channel.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(peer.channel)
            peer.channel.close()
            if peer.ready is not None:
                self.lost, self._lost_s = int(peer.ready.get("rank", 0)), time.monotonic()
                peer.was_ready, peer.ready = peer.ready, None  # it has ended; how far it came is still known
            peer.closed = True
            return
        *lines, peer.buffer = (peer.buffer + data).split(b"\n")
        if len(peer.buffer) > messages.MOST_BYTES:
            lines, peer.buffer = [peer.buffer], b""
        for line in lines:
            try:
                message = messages.decode_line(line)
            except messages.GarbledError as error:
                on_message(peer, {"type": messages.GARBLED, "what": str(error)})
                continue
            if message["type"] == "hello":
                peer = self._taken_up(peer, message.get("pid"))
            self._on_line(peer, message, on_message)

    def _taken_up(self, peer: Peer, pid: Any) -> Peer:
        """A process that has closed all its descriptors, and connects anew, goes on as the one that it was."""
        for old in self.peers:
            if old.closed and old.was_ready is not None and old.hello.get("pid") == pid:
                old.channel, old.buffer, old.closed = peer.channel, peer.buffer, False
                old.ready, old.was_ready = old.was_ready, None
                self.peers.remove(peer)
                self._selector.modify(old.channel, selectors.EVENT_READ, old)
                self.lost = None
                return old
        return peer

    def _on_line(self, peer: Peer, message: dict[str, Any], on_message: Callable[[Peer, dict[str, Any]], None]) -> None:
        kind = str(message["type"])
        if kind not in peer.reached:
            peer.reached.append(kind)
        if kind == "hello":
            peer.hello = message
        elif kind == "ready":
            peer.ready, peer.waits = message, not message.get("measures")
        elif not self.take_in(kind, message):
            peer.waits = peer.waits or kind in _WAITS_AFTER
            on_message(peer, message)

    def send(self, peer: Peer, kind: str, **fields: Any) -> None:
        """Send one rank a message; a process that has ended gets none."""
        peer.waits = False
        with contextlib.suppress(OSError):
            peer.channel.sendall(json.dumps({"type": kind, **fields}).encode() + b"\n")

    @property
    def log(self) -> Path:
        """The file with the script's output, of all its starts."""
        return self._log

    def tail(self, size: int = _TAIL_BYTES) -> str:
        """The end of what this start of the script has printed, in bytes."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(self._log_began, self._log.stat().st_size - size))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def close(self) -> None:
        """End the script and everything that it has started. May be called again."""
        if self._closed:
            return
        with defer_signals():  # or what is not ended yet would stay
            self._closed = True
            waiting = [peer for peer in self.ready if peer.waits]
            for peer in waiting:
                self.send(peer, "end")
            deadline = time.monotonic() + (0.0 if self._has_no_time else _END_S)
            while waiting and not self.process_ended and time.monotonic() < deadline:  # its workers end in order
                for key, _ in self._selector.select(_CHECK_S):
                    self._take_in(key.fileobj, lambda peer, message: None, key.data)
            self._ends.close()
            for peer in self.peers:
                peer.channel.close()
