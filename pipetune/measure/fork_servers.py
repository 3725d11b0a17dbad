"""The fork servers of a sweep: which there are, and which candidate gets a fork of which.

Importing torch takes longer than measuring many a candidate does, and it is the same for all of them. What the dynamic
loader or the allocator reads when a program starts, and side libraries that share an import name (Pillow-SIMD), need a
server of their own.

Why not one process that measures them one after the other: see benchmarks/measuring/bench_process.py.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from pipetune.measure.fork_server import PROGRAM, ForkedChild, ForkServer, ServerEndedError
from pipetune.processes.signals import defer_signals
from pipetune.records.sweep import AcceleratorSpec

#: Servers that are kept at most: each holds what it has imported, and a sweep mostly needs one or two kinds.
_MOST_SERVERS = 2
#: So many servers of a kind may end before their first child until no more are started.
_MOST_FAILURES = 2

#: The environment and the import path of a server: what its children have in common.
_Kind = tuple[tuple[tuple[str, str], ...], str | None]

#: What all candidates import; and what an accelerator of the kind does that trains for real.
_MODULES = ("torch", "pipetune.child.program", "pipetune.loaders.open_loader", "pipetune.child.time_steps", "psutil")
_TRAINING = "pipetune.accelerator.train_step"


def modules_for(accelerator_kind: str) -> tuple[str, ...]:
    """What a server imports, for an accelerator of :attr:`pipetune.records.sweep.AcceleratorSpec.kind`.

    None of it may ask a device anything when it is imported, or start a thread that does not end by itself before a
    fork, as OpenBLAS's (numpy's) do.
    """
    return _MODULES if accelerator_kind == "emulated" else (*_MODULES, _TRAINING)


class ForkServers:
    """The servers of a sweep, each started when its first candidate comes. A context manager: they end with it."""

    def __init__(self, modules: tuple[str, ...] = (), program: str = PROGRAM) -> None:
        """Servers that import ``modules`` and run ``program``, which is another module in a benchmark only."""
        self._modules = modules
        self._program = program
        self._servers: OrderedDict[_Kind, ForkServer] = OrderedDict()
        self._failures: Counter[_Kind] = Counter()

    def __enter__(self) -> ForkServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Those of the servers that there are."""
        return tuple(server.pid for server in self._servers.values())

    def begin(self, accelerator: AcceleratorSpec) -> None:
        """Start the server of most candidates now: it imports while the data set is being read."""
        self._modules = modules_for(accelerator.kind)
        with contextlib.suppress(OSError):  # a candidate will meet it
            self._start({}, None)

    def settle(self, stop: Callable[[], bool]) -> None:
        """Wait until all have imported everything: beside a measurement it would take its CPU time.

        Args:
            stop: whether to wait no longer.
        """
        for kind, server in list(self._servers.items()):
            try:
                server.wait_ready(stop)
            except ServerEndedError:
                self._drop(kind, stop)

    def fork(
        self, variables: Mapping[str, str], side: str | None, wire_fd: int, workers_fd: int, stop: Callable[[], bool]
    ) -> ForkedChild | None:
        """A child; ``None``: there can be none, so the candidate needs a new process.

        Raises:
            OSError: the system refuses.
        """
        kind = _kind(variables, side)
        for _ in range(2):  # one that was killed may look alive for a moment: until its last thread has ended
            if self._failures[kind] < _MOST_FAILURES:
                self._start(variables, side)
            self.settle(stop)
            if kind not in self._servers:
                return None
            try:
                return self._servers[kind].fork(wire_fd, workers_fd, stop)
            except ServerEndedError:
                self._drop(kind, stop)
        return None

    def close(self) -> None:
        """End them all. A signal is deferred meanwhile: it would leave one that is killed and not waited for."""
        with defer_signals():
            while self._servers:
                self._servers.popitem()[1].close()

    def _start(self, variables: Mapping[str, str], side: str | None) -> None:
        kind = _kind(variables, side)
        if kind in self._servers and self._servers[kind].ended:
            self._servers.pop(kind).close()
        if kind not in self._servers:
            self._servers[kind] = ForkServer(variables, side, self._modules, self._program)
        self._servers.move_to_end(kind)
        while len(self._servers) > _MOST_SERVERS:
            self._servers.popitem(last=False)[1].close()

    def _drop(self, kind: _Kind, stop: Callable[[], bool]) -> None:
        server = self._servers.pop(kind)
        server.close()
        if not server.has_forked and not stop():
            self._failures[kind] += 1


def _kind(variables: Mapping[str, str], side: str | None) -> _Kind:
    return tuple(sorted(variables.items())), side
