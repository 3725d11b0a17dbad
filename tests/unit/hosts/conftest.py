"""What tests of hosts share."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
