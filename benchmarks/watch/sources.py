"""Where the jobs of ``jobs.py`` get their images from: memory, files, a slow disk, a slow server."""

from __future__ import annotations

import http.client
import http.server
import io
import mmap
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

SIDE = 224
#: An image that was decoded before it was stored, in whole pages as direct reads want it.
STORED_BYTES = -(-SIDE * SIDE * 3 // 4096) * 4096
#: The limit set for the disk, and the rate at which the server sends on each connection (bytes/s).
DISK_BYTES_PER_S, NETWORK_BYTES_PER_S = 4_000_000, 300_000
_FILE_BYTES = 128 << 20
_PAGE = 4096
#: The server sleeps between pieces of so many bytes.
_PIECE_BYTES = 3000


def decode_pil(encoded: bytes) -> Any:
    from PIL import Image

    return np.array(Image.open(io.BytesIO(encoded)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def decode_cv2(encoded: bytes) -> Any:
    import cv2

    cv2.setNumThreads(1)
    return cv2.resize(cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR), (SIDE, SIDE))


def as_stored(pixels: bytes) -> Any:
    return np.frombuffer(pixels, np.uint8, count=SIDE * SIDE * 3).reshape(SIDE, SIDE, 3).copy()


@dataclass(slots=True)
class Samples:
    """A map-style data set: each sample is fetched in all of the given ways, and what the last one gives is decoded."""

    fetch: tuple[Callable[[int], bytes], ...]
    decode: Callable[[bytes], Any]
    length: int = 10**7

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> Any:
        return self.decode([get(number) for get in self.fetch][-1])


@dataclass(slots=True)
class Memory:
    """A map-style data set of ready arrays, which is never the limit."""

    shape: tuple[int, ...]

    def __len__(self) -> int:
        return 10**7

    def __getitem__(self, number: int) -> Any:
        return np.full(self.shape, number % 251, np.uint8)


@dataclass(slots=True)
class Files:
    """Small files, held by the page cache."""

    paths: list[str]

    def __call__(self, number: int) -> bytes:
        """The bytes of one file."""
        with open(self.paths[number % len(self.paths)], "rb") as file:
            return file.read()


@dataclass(slots=True)
class Disk:
    """Pieces of a large file, each from the disk: past the page cache, or after their pages were evicted."""

    path: str
    size: int = STORED_BYTES
    direct: bool = True
    _fd: int = -1

    def __call__(self, number: int) -> bytes:
        """One piece."""
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDONLY | (os.O_DIRECT if self.direct else 0))
        place = number * 104729 % ((_FILE_BYTES - self.size) // _PAGE) * _PAGE
        if self.direct:
            with mmap.mmap(-1, self.size) as aligned:
                os.preadv(self._fd, [aligned], place)
                return aligned[:]
        os.posix_fadvise(self._fd, place, self.size, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead for other pieces
        return os.pread(self._fd, self.size, place)


def large_file(folder: Path) -> str:
    """Write the file, and evict it from the page cache."""
    path = folder / "images.bin"
    with path.open("wb") as file:
        for _ in range(_FILE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return str(path)


@dataclass(slots=True)
class Plain:
    """Files from the slow server over a plain socket without a time limit, which waits in ``recv``."""

    port: int
    paths: list[str]
    size: int = 0
    """Bytes of each file; 0: all."""
    _socket: socket.socket | None = None

    def __call__(self, number: int) -> bytes:
        """The bytes of one file."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port))
        self._socket.sendall(f"GET {self.paths[number % len(self.paths)]}?{self.size} HTTP/1.1\r\n\r\n".encode())
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._socket.recv(1 << 16)
        head, _, body = got.partition(b"\r\n\r\n")
        length = int(head.lower().rpartition(b"content-length:")[2].split()[0])
        while len(body) < length:
            body += self._socket.recv(1 << 16)
        return body


@dataclass(slots=True)
class Http:
    """Files from the slow server by an HTTP client with a time limit, which therefore waits in ``poll``."""

    port: int
    paths: list[str]
    _client: http.client.HTTPConnection | None = field(default=None)

    def __call__(self, number: int) -> bytes:
        """The bytes of one file."""
        if self._client is None:
            self._client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self._client.request("GET", self.paths[number % len(self.paths)])
        return self._client.getresponse().read()


class _SlowFiles(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or the pieces wait for acknowledgements, and not for this server

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        content = Path(asked.path).read_bytes()
        content = content[: int(asked.query or 0) or len(content)]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        began_s = time.monotonic()
        for start in range(0, len(content), _PIECE_BYTES):
            piece = content[start : start + _PIECE_BYTES]
            time.sleep(max(0.0, began_s + (start + len(piece)) / NETWORK_BYTES_PER_S - time.monotonic()))
            self.wfile.write(piece)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def serve(folder: Path) -> None:
    """Serve files for ever; the port is in the file ``port``."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _SlowFiles) as server:
        (folder / "port.part").write_text(str(server.server_address[1]))
        (folder / "port.part").rename(folder / "port")
        server.serve_forever()


def served_port(folder: Path) -> int:
    """Wait for the server of this job; its port."""
    while not (folder / "port").exists():
        time.sleep(0.05)
    return int((folder / "port").read_text())
