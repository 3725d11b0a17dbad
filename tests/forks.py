"""Fork servers whose children run a few lines of Python: without torch, so that they start at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipetune.measure import fork_server
from pipetune.measure.fork_servers import ForkServers

#: Takes the place of the child's program: runs the lines that it is sent.
LINES = """
import os, sys, types

def measure_request():
    names = {"send": lambda text: os.write(int(os.environ["PIPETUNE_WIRE_FD"]), str(text).encode()), "status": 0}
    exec(sys.stdin.buffer.read().decode(), names)
    return names["status"]

sys.modules["pipetune.child.program"] = program = types.ModuleType("pipetune.child.program")
program.measure_request = measure_request
"""


def never() -> bool:
    """The user does not ask to stop."""
    return False


def folder_of(folder: Path, **modules: str) -> dict[str, str]:
    """Variables of a server that can import :data:`LINES` and these modules; the keyword is the name."""
    for name, text in {"lines": LINES, **modules}.items():
        (folder / f"{name}.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


@dataclass(slots=True)
class Forked:
    """A child and this process's end of its pipe."""

    child: fork_server.ForkedChild
    wire: int

    def tell(self, lines: str) -> None:
        """Give it its lines; it begins."""
        self.child.stdin.write(lines.encode())
        self.child.stdin.close()

    def read(self) -> str:
        """What it has sent, until it and those that it started have closed the pipe."""
        text = b""
        while data := os.read(self.wire, 1 << 16):
            text += data
        return text.decode()

    def said(self, lines: str) -> str:
        """What it sends when it runs these lines to their end."""
        self.tell(lines)
        text = self.read()
        assert self.child.wait(20.0) == 0, self.child.stdout.read()
        return text

    def close(self) -> None:
        """This process's ends of the pipes."""
        os.close(self.wire)
        self.child.stdout.close()
        if not self.child.stdin.closed:
            self.child.stdin.close()


@contextmanager
def fork_of(
    source: fork_server.ForkServer | ForkServers, variables: Mapping[str, str] | None = None
) -> Iterator[Forked]:
    """A child of a server, or of one of several; it must not need a new process."""
    wire_read, wire_write = os.pipe()
    workers_read, workers_write = os.pipe()
    try:
        if isinstance(source, ForkServers):
            child = source.fork(variables or {}, None, wire_write, workers_write, never)
        else:
            child = source.fork(wire_write, workers_write, never)
        assert child is not None
    except BaseException:
        os.close(wire_read)
        raise
    finally:
        for fd in (wire_write, workers_read, workers_write):
            os.close(fd)
    forked = Forked(child, wire_read)
    try:
        yield forked
    finally:
        forked.close()


def state_of(pid: int) -> str | None:
    """Letter of a process's state, as in ``ps``; ``None``: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def running(pid: int) -> bool:
    """Whether a process has not ended."""
    return state_of(pid) not in (None, "Z", "X")


def descriptors(pid: int | str = "self") -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
