"""In the place of a fork server: measures one candidate after the other in the same process. For bench_process.py.

What a candidate leaves behind (memory that is mapped, threads, modules, warm caches of the allocator) is there for the
next one. The process whose number the parent gets, and kills when it is done, is a child that only waits.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys

from pipetune.measure.fork_server import DESCRIPTORS, REQUEST, fd_variables
from pipetune.processes.parent_death import die_with_parent


def main() -> int:
    """Serve until the parent closes its end of the socket."""
    parent_pid, control_fd, side, *modules = sys.argv[1:]
    die_with_parent(int(parent_pid))
    control = socket.socket(fileno=int(control_fd))
    control.set_inheritable(False)
    if side:
        sys.path.insert(0, side)
    for name in modules:
        importlib.import_module(name)
    from pipetune.child.program import measure_request

    _tell(control, ready=True)
    while True:
        message, fds, _, _ = socket.recv_fds(control, len(REQUEST), len(DESCRIPTORS))
        if not message:
            return 0
        waiting = _waiting_process()
        _tell(control, pid=waiting)
        stdin, stdout, *others = fds
        for fd, number in ((stdin, 0), (stdout, 1), (stdout, 2)):
            os.dup2(fd, number)
        os.environ.update(fd_variables(*others))
        sys.stdin = os.fdopen(os.dup(0))
        status = measure_request()
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ProcessLookupError):
            os.kill(waiting, signal.SIGKILL)
        os.waitpid(waiting, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        os.close(nothing)
        _tell(control, returncode=status)


def _waiting_process() -> int:
    pid = os.fork()
    if pid == 0:
        die_with_parent(os.getppid())
        os.setsid()
        signal.pause()
        os._exit(0)
    return pid


def _tell(control: socket.socket, **fields: object) -> None:
    control.send(json.dumps(fields).encode() + b"\n")


if __name__ == "__main__":
    os._exit(main())
