"""Protection by questions: the kernel asks before a process of the script changes a file, and pipetune keeps the file.

For systems without user namespaces. pipetune itself answers, because it is an ancestor of every process of the script:
others may not read their memory everywhere. When pipetune dies, calls that change files fail from then on (``ENOSYS``),
and the supervisor of the start ends the script.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pipetune.processes.temporary_folder import prefix_of_folders
from pipetune.protection.contract import Request, Unavailable
from pipetune.protection.keeper import Keeper
from pipetune.protection.kept_files import measure_written, settle_kept
from pipetune.protection.listener import Judge, answer, receive
from pipetune.protection.room import RoomWatch
from pipetune.protection.seccomp_filter import is_known_machine
from pipetune.protection.state import COPIES, ProtectionFolder
from pipetune.protection.under_filter import SOCKET
from pipetune.records.written import SUPERVISED as MECHANISM
from pipetune.records.written import WrittenFiles

_PROGRAM = str(Path(__file__).with_name("under_filter.py"))
_TRIAL_S = 30.0
#: Refusals that are listed one by one.
MAX_NOTES = 20


def open_supervised(folder: ProtectionFolder, request: Request) -> Supervision:
    """Begin protection; nothing is started yet.

    Raises:
        Unavailable: this system does not allow it.
        OSError: the disk refuses.
    """
    if not is_known_machine():
        raise Unavailable(f"the system calls of {os.uname().machine} are not known")
    supervision = Supervision(folder, request)
    try:
        supervision.try_out()
        folder.write_state(MECHANISM, {})
    except BaseException:
        supervision.stop()
        raise
    return supervision


class Supervision:
    """See :class:`pipetune.protection.contract.Protection`."""

    mechanism = MECHANISM

    def __init__(self, folder: ProtectionFolder, request: Request) -> None:
        self._folder, self._request = folder, request
        self._notes: dict[str, None] = {}
        self._is_complete = True
        self._room = RoomWatch(str(folder.run), lambda: measure_written(folder.path))
        self.asked = 0
        """Calls that were answered."""
        self._begin()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        place = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=place)
        self._door.bind(f"/proc/self/fd/{place}/{SOCKET}")  # a path of a socket has 108 bytes at most
        os.close(place)
        self._door.listen()
        self._thread = threading.Thread(target=self._serve, name="protection", daemon=True)
        # A signal that this thread took would not wake the one that waits for it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _begin(self) -> None:
        places = [f"{place}/" for place in (*self._request.open_places, self._folder.run)]
        self._judge = Judge(Keeper(str(self._folder.path), [*places, prefix_of_folders()]), self._refuse)

    def try_out(self) -> None:
        """Find out whether the kernel asks, and its answers arrive.

        Raises:
            Unavailable: they do not.
        """
        trial = self._folder.path / "trial"
        try:
            done = subprocess.run(
                self.wrap(["sh", "-c", ': > "$0"', str(trial)]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TRIAL_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(str(error)) from None
        if done.returncode != 0 or not trial.exists() or not self.asked:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise Unavailable(said[-1] if said else "the kernel did not ask before a file was written")
        trial.unlink()
        self._is_complete = True

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command that puts itself under the filter and becomes another one."""
        self._is_complete = False
        return [sys.executable, "-P", "-E", "-S", "-B", _PROGRAM, str(self._folder.path), *command]

    def variables(self) -> dict[str, str]:
        """None is needed."""
        return {}

    def pulse_fd(self) -> int:
        """The lock: while processes of the script run, nobody puts back."""
        return self._folder.lock_fd

    def require_room(self) -> None:
        """The disk of the copies must not be full."""
        self._room.require_room()

    def collect(self) -> WrittenFiles:
        """Put back what existed, and list what was written."""
        written, self._is_complete = settle_kept(self._folder, MECHANISM, tuple(self._notes))
        if self._is_complete:
            os.makedirs(self._folder.path / COPIES, mode=0o700, exist_ok=True)
            self._begin()
        return written

    def close(self) -> None:
        """Stop to answer, and remove the copies, unless one of them is still needed."""
        self.stop()
        self._folder.close(keep=not self._is_complete)

    def stop(self) -> None:
        """Stop to answer: calls that change files fail from then on."""
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"x")
        self._thread.join()
        self._door.close()
        for fd in (self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _refuse(self, path: str, error: OSError) -> None:
        if len(self._notes) < MAX_NOTES:
            reason = error.strerror or str(error)
            self._notes[
                f"the script was not allowed to write to {path}, because it cannot be copied first: {reason}"
            ] = None

    def _serve(self) -> None:
        listeners: set[int] = set()
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._door, select.POLLIN)
        try:
            while True:
                for fd, event in poll.poll():
                    if fd == self._wake_read:
                        return
                    if fd == self._door.fileno():
                        listener = self._admit()
                        if listener is not None:
                            listeners.add(listener)
                            poll.register(listener, select.POLLIN)
                    elif not event & select.POLLIN or not self._answer_next(fd):
                        poll.unregister(fd)  # nobody is left under this filter
                        listeners.discard(fd)
                        os.close(fd)
        finally:
            for fd in listeners:
                os.close(fd)

    def _admit(self) -> int | None:
        try:
            channel, _ = self._door.accept()
        except OSError:
            return None
        with channel:
            # The program that connects sends at once, or has ended.
            channel.settimeout(_TRIAL_S)
            try:
                _, (listener, *_), _, _ = socket.recv_fds(channel, 1, 1)
                channel.sendall(b"g")
            except (OSError, ValueError):
                return None
        os.set_inheritable(listener, False)
        return listener

    def _answer_next(self, listener: int) -> bool:
        try:
            received = receive(listener)
            if received is None:
                return True
            identity, number, call = received
            error = self._judge.decide(number, call)
            self.asked += 1
            answer(listener, identity, error)
        except OSError:
            return False
        except Exception as unexpected:  # a call that nobody answers would wait for ever
            self._refuse("a file", OSError(0, f"{type(unexpected).__name__}: {unexpected}"))
            with contextlib.suppress(OSError):
                answer(listener, identity, errno.EACCES)
        return True
