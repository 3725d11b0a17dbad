"""The newest window of a watch, served to Prometheus.

The metrics are made from the window when one closes and handed over as a whole: nothing is counted by the library, so
that ranks which have ended leave nothing behind, and a ``PROMETHEUS_MULTIPROC_DIR`` that is meant for the job is not
written to.

Why ``prometheus_client``: it has the text format and its negotiation. :mod:`pipetune.watching.metrics_server` serves
them.
"""

from __future__ import annotations

import errno
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipetune.diagnosis import causes
from pipetune.errors import PipetuneError, UsageError
from pipetune.records.watch import CauseShare, Stall, Verdict, Window

if TYPE_CHECKING:
    import threading
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.metrics_core import Metric

_LOOPBACK = "127.0.0.1"
_HOST_AND_PORT = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[\w.-]*)):(?P<port>\d{1,5})")
_RANK = ("rank", "pid")
#: Labels of a metric → its value.
_Values = defaultdict[tuple[str, ...], float]


def start(address: str) -> Exporter:
    """Serve at ``address``, such as ``:9400``, ``0.0.0.0:9400`` or ``[::1]:9400``; without a host on the loopback.

    Raises:
        UsageError: this is not an address.
        PipetuneError: it cannot be served at, for example because the port is taken.
    """
    from prometheus_client import CollectorRegistry

    from pipetune.watching.metrics_server import serve

    host, port = parse_address(address)
    registry, collector = CollectorRegistry(), _Newest()
    registry.register(collector)
    try:
        server, thread = serve(host, port, registry)
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise PipetuneError(f"port {port} of {host} is in use", hint=f"try --prometheus :{port - 1}") from error
        raise PipetuneError(
            f"cannot serve Prometheus at {address}: {getattr(error, 'strerror', None) or error}",
            hint="name an address of this machine and a port above 1023, such as :9400",
        ) from error
    return Exporter(server, thread, collector)


def parse_address(text: str) -> tuple[str, int]:
    """``':9400'`` -> the loopback and 9400.

    Raises:
        UsageError: the text is not of that form.
    """
    found = _HOST_AND_PORT.fullmatch(text.strip())
    if found is None or int(found["port"]) > 65535:
        raise UsageError(
            f"--prometheus {text!r} is not an address", hint="write it as :9400, 0.0.0.0:9400 or [::1]:9400"
        )
    return found["v6"] or found["host"] or _LOOPBACK, int(found["port"])


class Exporter:
    """A server in a thread of its own; made by :func:`start`."""

    def __init__(self, server: WSGIServer, thread: threading.Thread, newest: _Newest) -> None:
        self._server, self._thread, self._newest = server, thread, newest
        self._lost_s: _Values = defaultdict(float)
        self._stalls: _Values = defaultdict(float)
        self._stalled_s: _Values = defaultdict(float)

    @property
    def port(self) -> int:
        """Port that it listens at, also where port 0 let the system choose."""
        return int(self._server.server_port)

    def update(self, window: Window) -> None:
        """Serve this window from now on."""
        self._count(window)
        self._newest.metrics = (*_gauges(window), *self._counters())

    def close(self) -> None:
        """Stop and free the port. May be called again."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)

    def _count(self, window: Window) -> None:
        for verdict in window.verdicts:
            lost_s = verdict.seconds * (verdict.lost_frac or 0.0)
            # A loss too small to divide among causes has no shares.
            for share in verdict.shares or (CauseShare(cause=causes.UNDETERMINED, share=1.0, ci95=(0.0, 1.0)),):
                self._lost_s[*_rank(verdict), share.cause] += lost_s * share.share
        for stall in window.stalls:
            self._stalls[*_rank(stall), stall.cause] += 1
            self._stalled_s[*_rank(stall), stall.cause] += (stall.t_end_ns - stall.t_start_ns) / 1e9
        alive = {_rank(verdict) for verdict in window.verdicts}
        for values in (self._lost_s, self._stalls, self._stalled_s):
            for labels in [labels for labels in values if labels[:2] not in alive]:
                del values[labels]

    def _counters(self) -> list[Metric]:
        return [
            _counter("pipetune_lost_seconds", "Accelerator time lost since the watch began, by cause", self._lost_s),
            _counter("pipetune_stalls", "Stalls of the accelerator that have ended, by cause", self._stalls),
            _counter("pipetune_stall_seconds", "Length of the stalls that have ended, by cause", self._stalled_s),
        ]


class _Newest:
    """The metrics that the server's threads collect; replaced as a whole."""

    def __init__(self) -> None:
        self.metrics: tuple[Metric, ...] = (_up(),)

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _gauges(window: Window) -> list[Metric]:
    """One per figure of the window; what was not measured is left out."""
    ranks = {_rank(verdict): verdict for verdict in window.verdicts}
    psi = {"cpu": window.psi_cpu_some_pct, "io": window.psi_io_some_pct, "memory": window.psi_memory_some_pct}
    return [
        _up(),
        _gauge(
            "pipetune_accelerator_busy_ratio",
            "Share of the newest window in which the accelerator was busy (an EMULATED one where source is emulated)",
            {(*rank, verdict.source): verdict.util_frac for rank, verdict in ranks.items()},
            (*_RANK, "source"),
        ),
        _gauge(
            "pipetune_lost_ratio",
            "Share of the newest window that was lost",
            {rank: verdict.lost_frac for rank, verdict in ranks.items()},
            _RANK,
        ),
        _gauge(
            "pipetune_loader_workers",
            "Loader workers of the rank",
            {rank: len(verdict.workers) for rank, verdict in ranks.items()},
            _RANK,
        ),
        _gauge(
            "pipetune_loader_worker_cpu_cores",
            "Cores used by all loader workers of the rank together",
            {rank: sum(worker.cpu_frac for worker in verdict.workers) for rank, verdict in ranks.items()},
            _RANK,
        ),
        _gauge(
            "pipetune_cpu_busy_ratio",
            "Busy part of the cores that the job may run on",
            {(): _ratio(window.cpu_busy_pct)},
        ),
        _gauge(
            "pipetune_cpu_idle_ratio",
            "Idle part of the cores that the job may run on",
            {(): _ratio(window.cpu_idle_pct)},
        ),
        _gauge(
            "pipetune_cpu_iowait_ratio",
            "Part of the cores that the job may run on in iowait",
            {(): _ratio(window.cpu_iowait_pct)},
        ),
        _gauge(
            "pipetune_pressure_ratio",
            "Share of the newest window in which some task waited for the resource (PSI)",
            {(name,): _ratio(percent) for name, percent in psi.items()},
            ("resource",),
        ),
        _gauge("pipetune_own_cpu_ratio", "Share of a core that pipetune itself used", {(): window.own_core_frac}),
        _gauge("pipetune_own_memory_bytes", "Memory that pipetune itself holds", {(): window.own_rss_bytes}),
    ]


def _up() -> Metric:
    return _gauge("pipetune_up", "1 while pipetune watches", {(): 1.0})


def _gauge(name: str, text: str, values: Mapping[tuple[str, ...], float | None], labels: Sequence[str] = ()) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=labels)
    for of, value in values.items():
        if value is not None:
            family.add_metric(of, value)
    return family


def _counter(name: str, text: str, values: Mapping[tuple[str, ...], float]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=(*_RANK, "cause"))
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _rank(of: Verdict | Stall) -> tuple[str, str]:
    """Labels of a rank. Outside of a distributed job the first is empty, which to Prometheus is no label at all."""
    return "" if of.rank is None else str(of.rank), str(of.pid)


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
