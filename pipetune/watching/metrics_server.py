"""An HTTP server for metrics that nobody can exhaust: few connections at a time, and none that says nothing.

Why not ``prometheus_client.start_http_server``: it has a thread for each connection and waits for a request for ever.
1,014 idle connections took every descriptor of a watch and two thirds of a core.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

#: Connections that are served at a time; further ones are closed at once. A Prometheus server has one.
MOST_CONNECTIONS = 12
#: Time that a client has for each part of its request (s).
REQUEST_S = 5.0


def serve(host: str, port: int, registry: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    """Serve the registry's metrics in a thread.

    Raises:
        OSError: the address cannot be served at.
    """
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    kind = type("_Server", (_Server,), {"address_family": family})
    server: WSGIServer = kind((host, port), _Handler)
    try:
        server.set_app(make_wsgi_app(registry))
    except BaseException:
        server.server_close()
        raise
    thread = threading.Thread(target=server.serve_forever, name="pipetune-prometheus", daemon=True)
    thread.start()
    return server, thread


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: standard error belongs to the job."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*args, **kwargs)

    def server_bind(self) -> None:
        """Without the look-up of the host's name, which may take a minute."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve it in a thread, if there is room."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve it, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away, or says nothing in time."""
