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

from pipetune.child.forked import draw_seeds, end_process
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
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # what an import has printed would be printed by every child again
    # Nothing of this is garbage: collecting would write to every object's page, which a child then copies.
    gc.collect()
    gc.freeze()
    _tell(control, ready=True)
    ended: int | None = None
    while True:
        message, fds, _, _ = socket.recv_fds(control, len(REQUEST), len(DESCRIPTORS))
        if ended is not None:
            os.waitpid(ended, 0)
        if not message:
            return 0
        ended = _serve(control, fds)


def _serve(control: socket.socket, fds: list[int]) -> int | None:
    """Fork a child and wait for its end; its PID, which is not reaped yet: nobody else is given its number meanwhile.

    The parent ends the child's process group by this number when it has read how the child ended.
    """
    server_pid = os.getpid()
    begun = begins = -1
    try:
        begun, begins = os.pipe()  # fails as well where some of the files that were sent could not be opened
        pid = os.fork()
    except OSError as error:
        _close(*fds, begun, begins)
        _tell(control, refused=[error.errno, error.strerror])
        return None
    if pid == 0:
        control.close()
        os.close(begun)
        _become_child(server_pid, fds, begins)
    _close(*fds, begins)
    os.read(begun, 1)  # until the child leads a process group of its own, or has ended
    os.close(begun)
    _tell(control, pid=pid)
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None  # it waits
    _tell(control, returncode=ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)
    return pid


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def _tell(control: socket.socket, **fields: object) -> None:
    control.send(json.dumps(fields).encode() + b"\n")


def _become_child(server_pid: int, fds: list[int], begins: int) -> None:
    """What ``subprocess`` does for a child that begins anew, then its program. Never returns.

    Args:
        begins: is closed when the child leads its own process group.
    """
    status = 1
    try:
        die_with_parent(server_pid)
        os.setsid()
        os.close(begins)
        stdin, stdout, *others = fds
        for fd, number in ((stdin, 0), (stdout, 1), (stdout, 2)):
            os.dup2(fd, number)
        os.close(stdin)
        os.close(stdout)
        for fd in others:
            os.set_inheritable(fd, True)
        os.environ.update(fd_variables(*others))
        sys.argv[1:] = [str(server_pid)]
        draw_seeds()
        from pipetune.child.program import measure_request

        status = measure_request()
    except SystemExit as end:  # as an interpreter that ends by it would
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        end_process(status)


if __name__ == "__main__":
    os._exit(main())
