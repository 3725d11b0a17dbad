"""Host 0: has all hosts measure each candidate of its sweep at the same time, and joins what they answer.

Keys of the store: ``hello/H`` which process has come, ``welcome/H/PROCESS`` the session that it belongs to. All others
are the session's, because the store may hold what an earlier start has left: ``here/H`` who it is, ``index/I`` the
images, ``task/N`` what to measure, ``ready/N`` and ``go/N`` so that all begin together, ``answer/N/H`` what came of it,
``left/H`` why a host has left, ``end`` that it is over.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pipetune.datasets.index import pack_index, read_index
from pipetune.errors import PipetuneError, UsageError
from pipetune.hosts.heart import LOST_S, Heart, beats_of
from pipetune.hosts.merge import join_hosts
from pipetune.hosts.place import HostPlace
from pipetune.hosts.start import Part, Start
from pipetune.hosts.store import HostStore, open_stores
from pipetune.hosts.tasks import Answer, answer_of, decode_answer, encode, own_ceiling, task_of
from pipetune.measure import harness
from pipetune.measure.conditions import Conditions, Live
from pipetune.measure.recording import Recording
from pipetune.processes.temporary_folder import temporary_folder
from pipetune.records.sweep import Candidate, Measurement, Outcome

#: Longest time for hosts to come (s), and for those that are told to end to do so.
WAIT_S, BYE_S = 300.0, 10.0
#: Time between two looks who has come (s).
_GATHER_S = 0.2
#: What has to be the same on all hosts.
_SAME = {"pipetune": "pipetune", "torch": "torch", "python": "Python"}


class Coordinator:
    """All hosts together; a context manager, which waits for them when it is entered and ends them when it is left."""

    def __init__(
        self, place: HostPlace, about: Mapping[str, Any], *, wait_s: float = WAIT_S,
        measure: Callable[..., tuple[Outcome, Recording]] = harness.measure,
        on_wait: Callable[[int, int], None] = lambda come, missing: None,
    ) -> None:  # fmt: skip
        """One that has not begun.

        Args:
            about: this host and its versions (:func:`pipetune.hosts.start.about_this_host`).
            measure: measures on this host.
            on_wait: is told how many hosts have come, and the number of one that has not.
        """
        self._place, self._about, self._wait_s, self._measure = place, about, wait_s, measure
        self._on_wait = on_wait
        self._names: dict[int, str] = {}
        self._held = contextlib.ExitStack()
        self._tasks = self._indexes = 0
        self._part: Part | None = None
        self._state: tuple[str, int, int, int] | None = None
        self._why: str | None = None
        self._seen: dict[int, tuple[int, float]] = {}

    def __enter__(self) -> Coordinator:
        with contextlib.ExitStack() as held:
            door, beats = open_stores(self._place, self._wait_s)
            session = uuid.uuid4().hex
            self._store = door.within(session)
            held.enter_context(Heart(beats.within(session), 0))
            held.callback(self._end)
            self._folder = held.enter_context(temporary_folder("hosts"))
            try:
                self._gather(door, session)
            except BaseException as error:
                self.stopped(reason_of(error))
                raise
            self._held = held.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if error is not None:
            self.stopped(reason_of(error))
        self._held.close()

    def stopped(self, why: str | None) -> None:
        """It will not come to its end, or ``None``: it will; the others are told why, the first time."""
        self._why = self._why or why

    def name_of(self, host: int) -> str:
        """A host in words: its name, and its number where others have the same."""
        name = self._names.get(host) or self._place.name_of(host)
        return f"{name} (host {host + 1})" if list(self._names.values()).count(name) > 1 else name

    def measure(
        self, candidate: Candidate, role: str, conditions: Conditions, *, attempt: int = 1,
        ceiling: Measurement | None = None, run_noise: float = 0.0,
        on_live: Callable[[Live], None] = lambda live: None, **_: object,
    ) -> tuple[Outcome, Recording]:  # fmt: skip
        """As :func:`pipetune.measure.harness.measure`, on all hosts. What a measurement should decide is left out: a
        host that is sure earlier would leave the others alone with what they share.

        Raises:
            PipetuneError: a host has left or no longer answers; its name is in the message.
        """
        try:
            return self._measure_all(candidate, role, conditions, attempt, ceiling, run_noise, on_live)
        except (KeyboardInterrupt, PipetuneError) as error:
            self.stopped(reason_of(error))
            raise

    def _measure_all(
        self, candidate: Candidate, role: str, conditions: Conditions, attempt: int, ceiling: Measurement | None,
        run_noise: float, on_live: Callable[[Live], None],
    ) -> tuple[Outcome, Recording]:  # fmt: skip
        own = self._own_slice(conditions)
        number = self._tasks
        self._tasks += 1
        task = task_of(candidate, role, conditions, attempt, ceiling, run_noise, self._indexes)
        self._store.put(f"task/{number}", encode(task))
        start = Start(self._store, number, self._place.hosts, self._look)
        outcome, recording = self._measure(
            candidate,
            role,
            replace(own, on_ready=start),
            attempt=attempt,
            ceiling=own_ceiling(ceiling, 0),
            run_noise=run_noise,
            on_live=on_live,
        )
        if recording.stopped is not None:
            raise recording.stopped  # the others have no result
        # Where it failed before, the others wait still.
        answers = [answer_of(outcome, recording, start(), in_step=conditions.workload.sync == "step")]
        answers += [self._answer(number, host) for host in range(1, self._place.hosts)]
        for key in (f"task/{number}", f"ready/{number}", f"go/{number}"):
            self._store.forget(key)
        return join_hosts(answers, self.name_of, ceiling), recording

    def _gather(self, door: HostStore, session: str) -> None:
        deadline = time.monotonic() + self._wait_s
        self._names[0] = str(self._about["host"])
        missing, welcomed, told = list(range(1, self._place.hosts)), dict[int, str](), 0
        while True:
            for host in missing:
                process = door.get(f"hello/{host}")
                if process is not None and process != welcomed.get(host):  # that of an earlier start does not answer
                    door.put(f"welcome/{host}/{process}", session)
                    welcomed[host] = process
            for host in missing:
                about = self._store.get(f"here/{host}")
                if about is not None:
                    self._has_come(host, about)
            missing = [host for host in missing if host not in self._seen]
            if not missing:
                return
            if time.monotonic() >= deadline:
                raise PipetuneError(
                    f"{self._place.name_of(missing[0])} did not come within {self._wait_s:.0f} s",
                    hint="its own output says why; --hosts takes the command on every host",
                )
            if told != missing[0]:
                self._on_wait(self._place.hosts - len(missing), missing[0])
                told = missing[0]
            time.sleep(_GATHER_S)

    def _has_come(self, host: int, about: Mapping[str, Any]) -> None:
        self._names[host] = str(about.get("host"))
        self._seen[host] = (0, time.monotonic())
        for fact, name in _SAME.items():
            if about.get(fact) != self._about[fact]:
                raise UsageError(f"{name} is {about.get(fact)} on {self.name_of(host)}, {self._about[fact]} here",
                                 hint="install the same on all hosts")  # fmt: skip

    def _own_slice(self, conditions: Conditions) -> Conditions:
        """The conditions with this host's part of the images; the others are sent all, where they have changed."""
        path = conditions.workload.index_path
        try:
            found = os.stat(path)
        except OSError as error:
            raise PipetuneError(f"cannot read the image index {path!r}: {error.strerror}") from error
        state = (path, found.st_ino, found.st_size, found.st_mtime_ns)
        if self._part is None or state != self._state:
            self._indexes += 1
            images = read_index(path)
            self._store.put(f"index/{self._indexes}", pack_index(images))
            self._state, self._part = (
                state,
                Part.of(images, 0, self._place.hosts, conditions.workload.seed, self._folder),
            )
        return self._part.with_it(conditions)

    def _answer(self, number: int, host: int) -> Answer:
        key = f"answer/{number}/{host}"
        while not self._store.wait(key):
            self._look()
        found = decode_answer(self._store.get(key))
        self._store.forget(key)
        return found

    def _look(self) -> None:
        """See whether all hosts are still there.

        Raises:
            PipetuneError: one is not.
        """
        hosts = list(self._seen)
        now = time.monotonic()
        for host, beats in zip(hosts, self._store.counts([beats_of(host) for host in hosts]), strict=True):
            if beats != self._seen[host][0]:  # as each is at the first look
                self._seen[host] = (beats, now)
                continue
            reason = self._store.get(f"left/{host}")
            if reason is not None:
                raise PipetuneError(f"{self.name_of(host)} has left: {reason}", hint="what was measured is kept")
            if now - self._seen[host][1] > LOST_S:
                del self._seen[host]  # nobody waits for its farewell
                raise PipetuneError(f"{self.name_of(host)} has not answered for {LOST_S:.0f} s",
                                    hint="what was measured is kept; is the host still there?")  # fmt: skip

    def _end(self) -> None:
        """Tell all hosts that it is over, and wait until they have seen it."""
        with contextlib.suppress(PipetuneError, KeyboardInterrupt):
            self._store.put("end", {"why": self._why})
            self._store.put(f"task/{self._tasks}", {"end": True})  # for which all wait
            deadline = time.monotonic() + BYE_S
            waiting = list(self._seen)
            while waiting and time.monotonic() < deadline:
                waiting = [host for host in waiting if self._store.get(f"left/{host}") is None]
                time.sleep(0.05)


def reason_of(error: BaseException) -> str:
    """Why a host came to no end of its own, for the others."""
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted"
    return error.message if isinstance(error, PipetuneError) else f"{type(error).__name__}: {error}"
