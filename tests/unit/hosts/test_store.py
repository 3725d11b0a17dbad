"""The store over the loopback: two connections of one process."""

from __future__ import annotations

import base64
import json
import random
import socket
import zlib
from typing import Any

import pytest

pytest.importorskip("torch", reason="hosts agree by its store")

from pipetune.errors import UsageError
from pipetune.hosts import store as store_module
from pipetune.hosts.place import HostPlace
from pipetune.hosts.store import HostStore, open_stores


def stores(port: int) -> tuple[Any, HostStore, HostStore]:
    """Torch's store, and both connections to it."""
    first, second = open_stores(HostPlace(host=0, hosts=1, address="127.0.0.1", port=port), 5.0)
    return first._store, first, second


def test_what_the_store_holds_is_json(port: int) -> None:
    """Nothing that a stranger could have run here."""
    raw, first, second = stores(port)
    first.put("key", {"path": "\udcff.jpg", "n": [1, None]})
    assert second.wait("key")  # setting does not wait for an answer
    text = zlib.decompress(base64.b64decode(raw.get("pipetune/key/0")))
    assert json.loads(text) == {"path": "\udcff.jpg", "n": [1, None]} == second.get("key")
    assert second.get("other") is None
    assert (first.count("n"), second.count("n"), second.counts(["n"])) == (1, 2, [2])
    assert not second.wait("never")
    first.forget("key")
    assert second.get("key") is None


def test_values_of_any_length(port: int) -> None:
    _, first, second = stores(port)
    long = random.Random(0).randbytes(9 << 20).hex()  # more than a connection may send at once
    first.put("long", long)
    while not second.wait("long"):
        pass
    assert second.get("long") == long


def test_sessions_do_not_see_each_other(port: int) -> None:
    _, first, second = stores(port)
    first.within("a").put("end", "of a")
    assert second.within("a").wait("end")
    assert second.within("b").get("end") is None


def test_a_name_that_is_the_loopback_here_is_refused(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", port))]
    monkeypatch.setattr(store_module.socket, "getaddrinfo", lambda *_, **__: found)
    place = HostPlace(host=0, hosts=2, address="n1", port=port)
    with pytest.raises(UsageError, match=r"n1 is 127.0.1.1 on this host itself, which no other host reaches"):
        open_stores(place, 1.0)
