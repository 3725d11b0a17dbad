"""What hosts tell each other: JSON under keys in ``torch.distributed``'s store, which host 0 keeps.

Each process has two connections: one that may wait, and one by which it shows every two seconds that it is alive.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pipetune.errors import MissingPackageError, PipetuneError, UsageError
from pipetune.hosts.place import HostPlace

if TYPE_CHECKING:
    from torch.distributed import Store

#: Every key begins with this: torchrun's store has others.
_PREFIX = "pipetune/"
#: Longest time for one answer of the store, which is far more than it takes (s).
_ANSWER_S = 30.0
#: One wait at most (s), so that a signal is handled, and a host that has gone is seen.
_WAIT_S = 1.0
#: Characters of one value at most: the store ends a connection that sends 8 MiB (``MAX_PAYLOAD_LEN`` of torch's libuv
#: backend).
_PIECE = 4 << 20


class StoreLostError(PipetuneError):
    """The store no longer answers: host 0 has ended, or the network is gone."""


class HostStore:
    """One connection to the store."""

    def __init__(self, store: Store, lost: str, prefix: str = _PREFIX) -> None:
        """Of torch's.

        Args:
            lost: what is said where it no longer answers.
        """
        self._store, self._lost_text, self._prefix = store, lost, prefix

    def within(self, session: str) -> HostStore:
        """The same connection with the keys of one session."""
        return HostStore(self._store, self._lost_text, f"{_PREFIX}{session}/")

    def put(self, key: str, value: Any) -> None:
        """Set a key to what JSON can hold."""
        text = base64.b64encode(zlib.compress(json.dumps(value).encode(), 1)).decode()
        pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
        with self._lost():
            for number, piece in enumerate(pieces):
                self._store.set(f"{self._prefix}{key}/{number}", piece)
            self._store.set(self._prefix + key, str(len(pieces)))  # last: who waits for it finds all

    def get(self, key: str) -> Any:
        """The value of a key that is set; ``None``: it is not."""
        with self._lost():
            if not self._store.check([self._prefix + key]):
                return None
            pieces = range(int(self._store.get(self._prefix + key)))
            text = b"".join(self._store.get(f"{self._prefix}{key}/{number}") for number in pieces)
            return json.loads(zlib.decompress(base64.b64decode(text)))

    def wait(self, key: str) -> bool:
        """Wait until a key is set, for a second at most; whether it is."""
        from torch.distributed import DistStoreError

        with self._lost():
            try:
                self._store.wait([self._prefix + key], timedelta(seconds=_WAIT_S))
            except DistStoreError as error:
                if "timeout" not in str(error):
                    raise
                return False
            return True

    def count(self, key: str) -> int:
        """Add one to a counter, and return it."""
        with self._lost():
            return int(self._store.add(self._prefix + key, 1))

    def counts(self, keys: list[str]) -> list[int]:
        """Counters that are there already."""
        with self._lost():
            return [int(value) for value in self._store.multi_get([self._prefix + key for key in keys])]

    def forget(self, key: str) -> None:
        """Remove a key."""
        with self._lost():
            if self._store.check([f"{self._prefix}{key}/0"]):
                self._store.delete_key(f"{self._prefix}{key}/0")
            self._store.delete_key(self._prefix + key)

    @contextlib.contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError, zlib.error) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise StoreLostError(f"{self._lost_text} ({reason[:120]})",
                                 hint="the output of host 1 says why") from error  # fmt: skip


def open_stores(place: HostPlace, wait_s: float) -> tuple[HostStore, HostStore]:
    """Two connections; on host 0 the first one keeps the store, unless the launcher does.

    It listens at the address that the launcher named, and not at all that the host has.

    Raises:
        MissingPackageError: torch is not installed.
        UsageError: the address that the launcher named cannot be reached from elsewhere.
        PipetuneError: host 0 cannot listen there, or does not answer within ``wait_s`` (s).
    """
    distributed = import_torch()
    where, began = f"{place.address}:{place.port}", time.monotonic()
    limit = timedelta(seconds=_ANSWER_S)
    if place.host == 0 and not place.has_store:
        first = distributed.TCPStore(
            place.address, place.port, None, True, limit, wait_for_workers=False, master_listen_fd=_listen(place)
        )
    else:
        first = _connected(distributed, place, wait_s, limit)
    second = _connected(distributed, place, max(1.0, wait_s - (time.monotonic() - began)), limit)
    lost = f"host 1 no longer answers at {where}" if place.host else f"the store at {where} no longer answers"
    return HostStore(first, lost), HostStore(second, lost)


def import_torch() -> Any:
    """``torch.distributed``, which says nothing by itself: otherwise each wait that ends is a warning, each attempt a
    stack.

    Raises:
        MissingPackageError: torch is not installed.
    """
    before = os.environ.get("TORCH_CPP_LOG_LEVEL")
    os.environ["TORCH_CPP_LOG_LEVEL"] = before or "FATAL"
    try:
        import torch.distributed
    except ImportError as error:
        raise MissingPackageError("torch is not installed, whose store hosts need to agree",
                                  hint="pip install 'pipetune[torch]'") from error  # fmt: skip
    finally:
        if before is None:
            del os.environ["TORCH_CPP_LOG_LEVEL"]
    return torch.distributed


def _listen(place: HostPlace) -> int:
    """A listening socket, whose descriptor the store takes over."""
    try:
        found = socket.getaddrinfo(place.address, place.port, type=socket.SOCK_STREAM)
        family, kind, number, _, address = next((one for one in found if not _is_loopback(str(one[4][0]))), found[0])
        _refuse_loopback(place, str(address[0]))
        with socket.socket(family, kind, number) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(4096)
            return made.detach()
    except OSError as error:
        raise PipetuneError(
            f"cannot listen at {place.address}:{place.port}: {error.strerror or error}",
            hint="MASTER_ADDR and MASTER_PORT name another address of this host",
        ) from error


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _refuse_loopback(place: HostPlace, address: str) -> None:
    """A host's own name may be its loopback (127.0.1.1 in Debian's /etc/hosts), where no other host gets."""
    if _is_loopback(address) and not _is_loopback(place.address) and place.address != "localhost":
        raise UsageError(f"{place.address} is {address} on this host itself, which no other host reaches",
                         hint="set MASTER_ADDR to its address in the network, on all hosts")  # fmt: skip


def _connected(distributed: Any, place: HostPlace, wait_s: float, limit: timedelta) -> Store:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            with socket.create_connection((place.address, place.port), timeout=_WAIT_S):
                pass  # before torch tries, which cannot be interrupted
            found: Store = distributed.TCPStore(place.address, place.port, None, False, limit, wait_for_workers=False)
            return found
        except (OSError, RuntimeError) as error:
            if time.monotonic() >= deadline:
                reason = getattr(error, "strerror", None) or (str(error).splitlines() or ["no answer"])[0][:120]
                raise PipetuneError(
                    f"host 1 does not answer at {place.address}:{place.port} within {wait_s:.0f} s: {reason}",
                    hint="is pipetune running there, and may this port be reached?",
                ) from error
            time.sleep(0.2)
