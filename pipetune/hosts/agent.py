"""Every other host: measures what host 0 asks for, until that is over."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pipetune.datasets.index import unpack_index
from pipetune.datasets.open_dataset import open_dataset
from pipetune.datasets.synthetic_uri import SCHEME
from pipetune.errors import PipetuneError
from pipetune.hosts.coordinator import WAIT_S, reason_of
from pipetune.hosts.heart import GIVE_UP_S, Heart
from pipetune.hosts.place import HostPlace
from pipetune.hosts.start import Part, Start, about_this_host
from pipetune.hosts.store import HostStore, open_stores
from pipetune.hosts.tasks import Task, answer_of, decode_task, encode, own_ceiling
from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure import harness
from pipetune.measure.conditions import Conditions
from pipetune.measure.fork_servers import ForkServers
from pipetune.measure.recording import Recording
from pipetune.processes.temporary_folder import temporary_folder
from pipetune.records.sweep import Failure, Outcome

#: Files that are looked for before anything is measured.
_LOOKED_FOR = 32


def serve(
    place: HostPlace, say: Callable[[str], None], *, wait_s: float = WAIT_S,
    measure: Callable[..., tuple[Outcome, Recording]] = harness.measure,
    servers_of: Callable[[], ForkServers] = ForkServers,
) -> int:  # fmt: skip
    """Measure what host 0 asks for; returns the number of measurements.

    Args:
        say: is told, in a line each, what this host does.
        wait_s: longest time for host 0 to come (s).
        measure: measures on this host.
        servers_of: makes the fork servers of what is measured.

    Raises:
        PipetuneError: host 0 does not answer, or was stopped.
        KeyboardInterrupt: this host was asked to stop; host 0 knows.
    """
    door, beats = open_stores(place, wait_s)
    session = _session(place, door, say, wait_s)
    store, beats = door.within(session), beats.within(session)
    heart = Heart(beats, place.host, lambda: beats.get("end") is not None, partial(_give_up, place))
    done, why = 0, "it has ended"
    stopped: str | None = None
    try:
        with heart, servers_of() as servers, HeldGpus() as gpus, temporary_folder("hosts") as folder:
            store.put(f"here/{place.host}", about_this_host())
            say(f"{place.name_of(place.host)}: measures what host 1 asks for")
            agent = _Agent(place, store, servers, gpus, folder, measure, heart, say)
            while agent.next():
                done += 1
        stopped = _ended(store)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and heart.lost is not None:
            raise heart.lost from None
        if not (isinstance(error, KeyboardInterrupt) and heart.told):
            why = reason_of(error)
            raise
        stopped = _ended(store)
    finally:
        with contextlib.suppress(PipetuneError):
            store.put(f"left/{place.host}", why)  # host 1 may be gone from here on
    if stopped is not None:
        raise _stopped(stopped)
    return done


def _session(place: HostPlace, door: HostStore, say: Callable[[str], None], wait_s: float) -> str:
    """What host 0 calls this session, which it tells each process that says hello."""
    process = uuid.uuid4().hex
    door.put(f"hello/{place.host}", process)
    deadline, key = time.monotonic() + wait_s, f"welcome/{place.host}/{process}"
    while not door.wait(key):
        if time.monotonic() >= deadline:
            raise PipetuneError(f"host 1 did not answer within {wait_s:.0f} s", hint="its own output says why")
    return str(door.get(key))


def _give_up(place: HostPlace) -> None:
    """The process ends, because nothing else ends a call of torch's."""
    os.write(2, f"pipetune: host 1 has not answered at {place.address}:{place.port} for {GIVE_UP_S:.0f} s\n".encode())
    os._exit(1)


def _stopped(reason: str) -> PipetuneError:
    return PipetuneError(f"host 1 was stopped: {reason}", hint="its own output says more")


def _ended(store: HostStore) -> str | None:
    """Why host 0 came to an end that was not its own; ``None``: it has finished."""
    with contextlib.suppress(PipetuneError):
        return (store.get("end") or {}).get("why")
    return None


class _Agent:
    def __init__(
        self, place: HostPlace, store: HostStore, servers: ForkServers, gpus: HeldGpus, folder: Path,
        measure: Callable[..., tuple[Outcome, Recording]], heart: Heart,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._heart, self._say = heart, say
        self._place, self._store, self._servers, self._gpus, self._folder = place, store, servers, gpus, folder
        self._measure = measure
        self._number = 0
        self._part: tuple[int, Part] | None = None

    def next(self) -> bool:
        """Measure the next task; ``False``: there is none any more."""
        while not self._store.wait(f"task/{self._number}"):
            if self._store.get("end") is not None:
                return False
        asked = self._store.get(f"task/{self._number}")
        if asked.get("end"):
            return False
        task = decode_task(asked)
        if self._number == 0:
            self._servers.begin(task.workload.accelerator)
        conditions = self._part_of(task).with_it(self._conditions(task))
        missing = _missing(conditions.paths)
        start = Start(self._store, self._number, self._place.hosts, self._look)
        if missing is None:
            with self._heart.measuring():
                outcome, recording = self._measure(
                    task.candidate, task.role, replace(conditions, on_ready=start), attempt=task.attempt,
                    run_noise=task.run_noise, ceiling=own_ceiling(task.ceiling, self._place.host),
                )  # fmt: skip
            if recording.stopped is not None:
                raise recording.stopped
        else:
            outcome, recording = _refused(task, missing), Recording()
        # Where it failed before, the others wait still.
        answer = answer_of(outcome, recording, start(), in_step=task.workload.sync == "step")
        self._store.put(f"answer/{self._number}/{self._place.host}", encode(answer))
        self._number += 1
        return True

    def _look(self) -> None:
        """Raises where there is nothing to wait for any more."""
        reason = _ended(self._store)
        if reason is not None:
            raise _stopped(reason)

    def _part_of(self, task: Task) -> Part:
        if self._part is None or self._part[0] != task.index:
            images, seed = unpack_index(self._store.get(f"index/{task.index}")), task.workload.seed
            if task.workload.dataset.startswith(SCHEME) and not os.path.isdir(images.root):
                # Each host makes its own: the same ones, from the seed in the name.
                self._say(f"{self._place.name_of(self._place.host)}: makes {task.workload.dataset}")
                workers = len(os.sched_getaffinity(0))
                open_dataset(task.workload.dataset, seed=seed, limit_bytes=1 << 62, workers=workers)
            self._part = (task.index, Part.of(images, self._place.host, self._place.hosts, seed, self._folder))
        return self._part[1]

    def _conditions(self, task: Task) -> Conditions:
        # A loader of the user's own would be code, which nobody takes from a network.
        workload = replace(task.workload, loader_path=None)
        return Conditions(
            workload=workload, paths=(), cores=frozenset(os.sched_getaffinity(0)), timeout_s=task.timeout_s,
            servers=self._servers, gpus=self._gpus, new_process=task.new_process, device_noise=task.device_noise,
        )  # fmt: skip


def _missing(paths: Sequence[str]) -> str | None:
    """One of some files that is not here; ``None``: all are."""
    step = max(1, len(paths) // _LOOKED_FOR)
    return next((path for path in paths[::step] if not os.path.exists(path)), None)


def _refused(task: Task, path: str) -> Outcome:
    return Outcome(
        candidate=task.candidate, role=task.role, attempt=task.attempt, started_unix_s=time.time(), wall_s=0.0,
        failure=Failure(
            kind="dataset_changed", phase="spawn", message=f"{path!r} is not there",
            hint="every host needs the data set in the same folder: a shared file system, or a copy",
        ),
    )  # fmt: skip
