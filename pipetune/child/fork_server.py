"""A process that has imported what every candidate needs, and forks a child for each one. Never imported elsewhere.

The parent's side is :mod:`pipetune.measure.fork_server`, which says why. This process measures nothing, starts no
thread and asks no device anything: a child could use neither threads nor a CUDA context begun before the fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
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
    # Nothing of this is garbage: collecting would write to every object's page, which a child then copies.
    gc.collect()
    gc.freeze()
    while True:
        message, fds, _, _ = socket.recv_fds(control, len(REQUEST), len(DESCRIPTORS))
        if not message:
            return 0
        _serve(control, fds)


def _serve(control: socket.socket, fds: list[int]) -> None:
    server_pid = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        _tell(control, refused=[error.errno, error.strerror])
        return
    finally:
        if os.getpid() == server_pid:
            for fd in fds:
                os.close(fd)
    if pid == 0:
        control.close()
        _become_child(server_pid, fds)
    _tell(control, pid=pid)
    _, status = os.waitpid(pid, 0)
    _tell(control, returncode=os.waitstatus_to_exitcode(status))


def _tell(control: socket.socket, **fields: object) -> None:
    control.send(json.dumps(fields).encode() + b"\n")


def _become_child(server_pid: int, fds: list[int]) -> None:
    """What ``subprocess`` does for a child that begins anew, then its program. Never returns."""
    status = 1
    try:
        die_with_parent(server_pid)
        os.setsid()
        stdin, stdout, *others = fds
        for fd, number in ((stdin, 0), (stdout, 1), (stdout, 2)):
            os.dup2(fd, number)
        os.close(stdin)
        os.close(stdout)
        for fd in others:
            os.set_inheritable(fd, True)
        os.environ.update(fd_variables(*others))
        from pipetune.child.program import measure_request

        status = measure_request(forked=True)
    except BaseException:  # as an interpreter that ends by it would
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    os._exit(main())
