from __future__ import annotations

import socket
from pathlib import Path

from pipetune.protection.live_places import live_places, parse_sockets

TEXT = """Num       RefCount Protocol Flags    Type St Inode Path
00000000: 00000002 00000000 00010000 0001 01 20643 /run/munge/munge.socket.2
00000000: 00000003 00000000 00000000 0001 03 20644
00000000: 00000002 00000000 00010000 0001 01 20645 @abstract
00000000: 00000002 00000000 00010000 0001 01 20646 /tmp/with a blank
00000000: 00000002 00000000 00010000 0001 01 20647 /run/munge/munge.socket.2
"""


def test_sockets_with_a_path_are_named_once() -> None:
    assert parse_sockets(TEXT) == ["/run/munge/munge.socket.2", "/tmp/with a blank"]


def test_a_socket_that_is_bound_is_live(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert tmp_path / "s" in list(live_places())
        (tmp_path / "s").unlink()
        assert tmp_path / "s" not in list(live_places()), "its path is gone"
