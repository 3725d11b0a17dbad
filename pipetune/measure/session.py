"""Session: one child from its start to its end, with its pipe, its output and the sampler. Used by the harness alone.

The child leads a process group of its own, so that one signal ends it with all its loader workers. The kernel ends it
when this process dies.

Why a process group and not psutil's ``children(recursive=True)``: the list may lack a worker that is just being
started; the group does not.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import IO, Any

from pipetune.machine.nvml.gpu import Gpu
from pipetune.machine.oom_kills import OomKills
from pipetune.measure import failures, messages, wire
from pipetune.measure.conditions import Conditions, Live
from pipetune.measure.fork_server import PACKAGE_FOLDER, RUN_MODULE, ForkedChild, fd_variables
from pipetune.measure.machine_speed import Speed
from pipetune.measure.recording import Recording
from pipetune.measure.sampled_gpu import open_sampled_gpu
from pipetune.processes import shm_files
from pipetune.processes.group_leader import GroupLeader
from pipetune.processes.signals import DeferredSignals
from pipetune.records.sweep import Failure, StepTime, from_dict
from pipetune.sampler.loop import LEFT_BEHIND, Sampler, stop_all

#: Longest time that a child may take to end after it has closed its pipe (s).
_EXIT_GRACE_S = 10.0
#: Batches of each worker until there is a rate: the first, a warm-up's, three windows (:mod:`.phases`), one to spare.
_BATCHES_OF_A_WORKER = 6
#: Time between two checks whether pipetune was asked to stop, while it waits for the child (s).
_CHECK_S = 0.2
_STDERR_TAIL = 4096
_LIVE_STEPS = 200

#: What a new child runs.
_PROGRAM = RUN_MODULE


class Session:
    """One child: started, given its request, followed to its end, and cleaned up after."""

    def __init__(
        self, recording: Recording, conditions: Conditions, on_live: Callable[[Live], None], deferred: DeferredSignals
    ) -> None:
        self._deferred = deferred
        self._recording = recording
        self._conditions = conditions
        self._on_live = on_live
        self._phase = "spawn"
        self._failure: Failure | None = None
        self._buffer = self._stderr = b""
        self._read_fd: int | None = None
        self._workers_fd: int | None = None
        self._started: GroupLeader | ForkedChild | None = None
        self._samplers: dict[int, Sampler] = {}
        self._gpus: dict[int, Gpu] = {}
        self._of_ranks: dict[str, dict[str, Any]] = {}
        self._announced: dict[int, int] = {}
        self._oom_kills = OomKills()

    @property
    def _has_result(self) -> bool:
        """Every rank has sent one."""
        ranks = self._conditions.workload.ranks
        return all(self._recording.of_rank(rank).result for rank in range(ranks))

    @property
    def forked(self) -> bool:
        """The child is a fork of a server, and no new process."""
        return isinstance(self._started, ForkedChild)

    @property
    def _process(self) -> GroupLeader | ForkedChild:
        assert self._started is not None
        return self._started

    def start(self, variables: Mapping[str, str], side: str | None = None) -> None:
        """Start the child with these variables in its environment, as a fork where there are fork servers.

        Args:
            side: folder that comes first on its import path; a new process finds it by itself.

        Raises:
            OSError: the system refuses.
        """
        with contextlib.ExitStack() as ends:
            self._read_fd, write_fd = os.pipe()
            ends.callback(os.close, write_fd)
            self._workers_fd, workers_fd = os.pipe()
            ends.callback(os.close, workers_fd)
            servers = self._conditions.servers
            if servers is not None and self._conditions.new_process:
                servers.settle(self._asked_to_stop)
            elif servers is not None:
                self._started = servers.fork(variables, side, write_fd, workers_fd, self._asked_to_stop)
            if self._started is None:
                pipes = fd_variables(write_fd, workers_fd)
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), "pipetune.child.program", PACKAGE_FOLDER],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    pass_fds=(write_fd, workers_fd), env={**os.environ, **variables, **pipes}, start_new_session=True,
                )  # fmt: skip
                self._started = GroupLeader(process)

    def send(self, request: bytes) -> None:
        """Send the child what to measure."""
        stdin = _pipe(self._process.stdin)
        with contextlib.suppress(BrokenPipeError):  # it ended at once: follow() reports the cause
            stdin.write(request)
        with contextlib.suppress(BrokenPipeError):
            stdin.close()

    def follow(self, limit_s: float) -> Failure | None:
        """Read until the child has closed its pipes or pipetune is asked to stop; ``None``: it sent a result."""
        began_s = time.monotonic()
        assert self._read_fd is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._read_fd, selectors.EVENT_READ, self._on_wire)
            selector.register(_pipe(self._process.stdout), selectors.EVENT_READ, self._on_stderr)
            if self._workers_fd is not None:
                selector.register(self._workers_fd, selectors.EVENT_READ, self._on_workers)
            while self._read_fd in selector.get_map():
                if self._deferred:
                    return None if self._has_result else failures.stopped(self._phase)
                allowed_s = limit_s + self._slow_batches_s()
                left = began_s + allowed_s - time.monotonic()
                if left <= 0 and self._has_result:
                    self._recording.notes.append(f"measured, but the loader had not ended after {allowed_s:.0f} s")
                    return None
                if left <= 0:
                    others_wait_for = self._of_ranks.get("waits_for", {}).get("ranks", ())
                    return failures.hung(self._phase, allowed_s, self._tail(), others_wait_for)
                ready = selector.select(min(left, _CHECK_S))
                if not ready and self._process.poll() is not None:
                    break  # the child has ended; a process that it forked still holds the pipe open
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                        continue
                    try:
                        key.data(data)
                    except messages.GarbledError as error:
                        return self._garbled(str(error))
            returncode = self._end_of_child()
            self._drain_stderr(selector)
        if self._has_result:
            if self._recording.speed_after is None:
                why = self._why_ended(returncode)
                self._recording.notes.append(f"measured, but the loader did not end cleanly: {why.message}")
            return None
        return self._why_ended(returncode)

    def _slow_batches_s(self) -> float:
        """Time besides the limit for a loader whose batches take long; none where the user has set the limit."""
        by_user = self._conditions.timeout_s is not None
        return 0.0 if by_user else _BATCHES_OF_A_WORKER * self._recording.time_to_first_batch_s

    def _why_ended(self, returncode: int) -> Failure:
        """Why the child has ended without a result, or not cleanly; its last words have been read."""
        ended, oom_kills = self._of_ranks.get("rank_ended"), self._oom_kills.count_new()
        if self._failure is None and ended is not None:
            failure = failures.from_exit(ended["returncode"], ended["phase"], self._tail(), oom_kills)
            return failures.of_rank(failure, ended["ended_rank"])
        return self._failure or failures.from_exit(returncode, self._phase, self._tail(), oom_kills)

    def _garbled(self, what: str) -> Failure | None:
        """Nothing that follows can be trusted; a result that has arrived is one. :meth:`close` ends the child."""
        if not self._has_result:
            return failures.garbled(self._phase, what, self._tail())
        self._recording.notes.append(f"measured, but then the child sent what cannot be read: {what}")
        return None

    def confirmed(self, failure: Failure | None) -> Failure | None:
        """The failure; of a device that NVML has lost as well, it says so. After :meth:`follow`."""
        if failure is None or not failures.may_be_lost(failure):
            return failure
        left = stop_all(self._samplers.values())  # which ask NVML once more at their end
        for rank, gpu in self._gpus.items():
            if self._samplers[rank] not in left and gpu.lost is not None:
                message = f"{failure.message}; NVML: {gpu.lost}"
                return replace(failure, kind=failures.DEVICE_LOST, message=message)
        return failure

    def close(self) -> None:
        """End what is left of the child's process group, stop the sampler, and remove files that workers left."""
        if self._started is not None:
            self._started.end_group()
            self._wait_for_end()
            self._started.reap()
        left = stop_all(self._samplers.values())
        for rank, sampler in self._samplers.items():
            self._recording.of_rank(rank).readings = sampler.readings
            if sampler.error is not None:
                self._recording.notes.append(f"the sampler had a fault: {sampler.error!r}")
            if sampler in left:
                self._recording.notes.append(LEFT_BEHIND)
            elif (gpu := self._gpus.get(rank)) is not None:
                note = self._recording.of_rank(rank).keep_gpu(gpu, self._conditions.interval_s)
                if note is not None and note not in self._recording.notes:
                    self._recording.notes.append(note)
        if self._workers_fd is not None:
            self._on_workers(b"")
            shm_files.remove_files_of(self._announced)
            os.close(self._workers_fd)
        if self._read_fd is not None:
            os.close(self._read_fd)
        for stream in (self._started.stdin, self._started.stdout) if self._started else ():
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _asked_to_stop(self) -> bool:
        return bool(self._deferred)

    def _end_of_child(self) -> int:
        """Its return code. It is reaped when all of its group has been ended, which is known by its number."""
        deadline = time.monotonic() + _EXIT_GRACE_S
        while time.monotonic() < deadline and not self._deferred:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(timeout=_CHECK_S)
        # It has closed its pipe but does not end: its last message has been read.
        self._process.end_group()
        return self._wait_for_end()

    def _wait_for_end(self) -> int:
        """Wait for a child that was killed, for a limited time: in uninterruptible sleep it ignores SIGKILL."""
        try:
            return self._process.wait(timeout=_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            self._recording.notes.append(f"process {self._process.pid} does not end; it may be waiting for storage")
            return -signal.SIGKILL

    def _drain_stderr(self, selector: selectors.BaseSelector) -> None:
        stdout = _pipe(self._process.stdout)
        while any(key.fileobj is stdout for key, _ in selector.select(0)):
            data = os.read(stdout.fileno(), 1 << 16)
            if not data:
                return
            self._on_stderr(data)

    def _on_workers(self, data: bytes) -> None:
        """Of workers that were started while the child runs; so many may be that the pipe would be full."""
        assert self._workers_fd is not None
        self._announced = {**shm_files.read_announced(self._workers_fd, data), **self._announced}

    def _on_stderr(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-_STDERR_TAIL:]

    def _tail(self) -> str:
        return self._stderr.decode(errors="replace").strip()

    def _on_wire(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > messages.MOST_BYTES:
            raise messages.GarbledError(f"a line of more than {messages.MOST_BYTES >> 20} MiB")
        for line in lines:
            self._on_message(wire.decode_message(line))

    def _on_message(self, message: dict[str, Any]) -> None:
        kind, rank = message["type"], message.get("rank", 0)
        if not 0 <= rank < self._conditions.workload.ranks:
            raise messages.GarbledError(f"a message of rank {rank}")
        recording = self._recording.of_rank(rank)
        if kind == "hello":
            recording.hello = message
            self._start_sampler(rank, message)
        elif kind == "phase":
            if rank == 0:
                self._phase = message["phase"]
                self._on_live(Live(phase=self._phase))
        elif kind == "steps":
            steps = wire.rows_to_steps(message["rows"])
            (recording.timed if message["phase"] == "timed" else recording.warmup).extend(steps)
            if rank == 0:
                self._on_live(live_of(message["phase"], recording, self._conditions.workload.ranks))
        elif kind == "first_batch":
            recording.first_batch = message
        elif kind == "checked":
            recording.bad_images.update((position, reason) for position, reason in message["bad"])
            self._on_live(Live(phase=self._phase, images_done=message["done"]))
        elif kind == "result":
            recording.result = message
        elif kind == "closed":
            recording.speed_after = Speed(*message["speed_after"]) if message["speed_after"] else None
        elif kind in ("waits_for", "rank_ended"):
            self._of_ranks[kind] = message
        elif kind == "failure" and self._failure is None:
            self._failure = from_dict(Failure, {**message["failure"], "stderr_tail": self._tail()})

    def _start_sampler(self, rank: int, hello: dict[str, Any]) -> None:
        """The first rank's follows the processes of all; those of the others read their GPUs, where they have any."""
        gpu = None
        if self._conditions.workload.accelerator.kind == "cuda":
            gpu = open_sampled_gpu(hello["gpu_uuid"], self._conditions.gpus, self._recording)
            if gpu is not None:
                hello["versions"]["driver"] = gpu.driver_version or "unknown"
        if rank and gpu is None:
            return
        sampler = Sampler(
            None if rank else self._process.pid, gpu, cores=self._conditions.cores,
            interval_s=self._conditions.interval_s,
        )  # fmt: skip
        try:
            sampler.start()
        except RuntimeError as error:  # no thread can be started; the rate needs none
            self._recording.notes.append(f"no readings of processor and memory: {error}")
            sampler.stop()  # which closes the GPU
            return
        self._samplers[rank] = sampler
        if gpu is not None:
            self._gpus[rank] = gpu


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # Popen was asked for a pipe
    return stream


def live_of(phase: str, recording: Recording, ranks: int = 1) -> Live:
    """Rate, idle time and data wait over the newest steps.

    Args:
        ranks: so many make as many samples, which the rate counts.
    """
    steps: list[StepTime] = (recording.timed or recording.warmup)[-_LIVE_STEPS:]
    span_s = (steps[-1].t_end_ns - steps[0].t_end_ns) / 1e9
    if len(steps) < 2 or span_s <= 0:
        return Live(phase=phase)
    later = steps[1:]
    return Live(
        phase=phase,
        samples_per_s=ranks * sum(step.samples for step in later) / span_s,
        idle_frac=min(1.0, sum(step.idle_s for step in later) / span_s),
        data_wait_frac=min(1.0, sum(step.data_wait_s for step in later) / span_s),
    )
