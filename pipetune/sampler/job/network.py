"""A job's use of the network: bytes received, and connections of its loader workers.

Why not psutil: it reads the counters and connections of its own network namespace; a job in a container has another.
"""

from __future__ import annotations

import contextlib
import os
import re

from pipetune.machine.proc import PROC, open_kept

_ESTABLISHED = b"01"
#: Interfaces that are made of others, by the names that Linux's tools give them: bonds, teams, bridges, VLANs
#: (eth0.100), and the host's ends of containers' links.
_MADE_OF_OTHERS = re.compile(rb"bond|team|br-|br\d|docker|virbr|cni|flannel|cali|vxlan|veth|vlan|ovs|.*\.\d+$")
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def parse_received(text: bytes) -> int:
    """``/proc/PID/net/dev`` -> bytes received by all interfaces together, since each was set up.

    What comes in by several that are one (a bond and its cards, a bridge, a VLAN) is counted by each of them: where
    there is a card, those that are made of others by their name do not count.
    """
    by_name = {}
    for line in text.splitlines():
        name, colon, values = line.partition(b":")
        if colon and values.split():
            by_name[name.strip()] = int(values.split()[0])
    cards = {name: received for name, received in by_name.items() if not _MADE_OF_OTHERS.match(name)}
    return sum((cards if cards.keys() - {b"lo"} else by_name).values())


def parse_connected(text: bytes) -> set[int]:
    """``/proc/PID/net/tcp`` or ``tcp6`` -> inodes of its established connections (proc_net(5), the kernel's
    networking/proc_net_tcp)."""
    rows = (line.split() for line in text.splitlines()[1:])
    return {int(row[9]) for row in rows if len(row) > 9 and row[3] == _ESTABLISHED and row[9].isdigit()}


def socket_inodes(pid: int, proc: str = PROC) -> set[int] | None:
    """Inodes of the sockets that a process has open; ``None``: this user may not see its files."""
    folder = f"{proc}/{pid}/fd"
    found: set[int] = set()
    try:
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                socket = _SOCKET.fullmatch(os.readlink(f"{folder}/{name}"))
                if socket:
                    found.add(int(socket[1]))
    except OSError:
        return None
    return found


def has_connections(pid: int, *, apart_from: int | None = None, proc: str = PROC) -> bool | None:
    """Whether a process has a TCP connection, the loopback included; ``None``: this user may not see its files.

    Args:
        pid: the process.
        apart_from: a process whose connections do not count: a forked worker inherits those by which its parent
            communicates with the other ranks.
        proc: where proc is mounted.
    """
    own = socket_inodes(pid, proc)
    if own is None:
        return None
    if apart_from is not None:
        own -= socket_inodes(apart_from, proc) or set()
    if not own:
        return False
    texts = [_whole(f"{proc}/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    return any(own & parse_connected(text) for text in texts)


def _whole(path: str) -> bytes:
    """The content of a file of any length; empty where it is unavailable."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


class NetworkReader:
    """Bytes received in the network namespace of one process, from one reading to the next."""

    def __init__(self, pid: int, proc: str = PROC) -> None:
        # An open descriptor stays in this namespace when the process ends.
        self._file = open_kept(f"{proc}/{pid}/net/dev", 65536)
        self._before: int | None = None

    def read(self) -> int | None:
        """Bytes received since the last call; ``None`` at the first one and where the counters are unavailable."""
        try:
            now = None if self._file is None else parse_received(self._file.read_all())
        except (OSError, ValueError):
            now = None
        before, self._before = self._before, now
        return None if before is None or now is None else max(0, now - before)

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file is not None:
            self._file.close()
