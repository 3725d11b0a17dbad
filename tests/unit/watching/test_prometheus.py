from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from pipetune.errors import PipetuneError, UsageError
from pipetune.watching import metrics_server
from pipetune.watching.prometheus import Exporter, parse_address, start
from tests.integration.commands import wait_until
from tests.watch_fakes import PID, stall, verdict, window


@pytest.fixture(autouse=True)
def ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server checks every half second whether it is to end."""
    monkeypatch.setattr(socketserver.BaseServer.serve_forever, "__defaults__", (0.01,))


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    exporter = start(":0")
    yield exporter
    exporter.close()


def samples(exporter: Exporter) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_before_the_first_window_it_is_up_and_claims_nothing(exporter: Exporter) -> None:
    assert samples(exporter) == {"pipetune_up": 1.0}


def test_a_window_is_served_as_ratios_seconds_and_bytes(exporter: Exporter) -> None:
    exporter.update(window(stalls=(stall(rank=2),), verdicts=(verdict(rank=2),)))
    got = samples(exporter)
    rank = f'pid="{PID}",rank="2"'
    assert got[f'pipetune_accelerator_busy_ratio{{{rank},source="nvml"}}'] == 0.4
    assert got[f"pipetune_lost_ratio{{{rank}}}"] == 0.6
    assert got[f'pipetune_lost_seconds_total{{cause="cpu_decode_bound",{rank}}}'] == pytest.approx(5.4)
    assert got[f'pipetune_stalls_total{{cause="cpu_decode_bound",{rank}}}'] == 1
    assert got[f'pipetune_stall_seconds_total{{cause="cpu_decode_bound",{rank}}}'] == 2
    assert got[f"pipetune_loader_workers{{{rank}}}"] == 2
    assert got[f"pipetune_loader_worker_cpu_cores{{{rank}}}"] == pytest.approx(1.9)
    assert got["pipetune_cpu_busy_ratio"] == 0.96
    assert got["pipetune_cpu_idle_ratio"] == 0.04
    assert got['pipetune_pressure_ratio{resource="cpu"}'] == 0.12
    assert got["pipetune_own_cpu_ratio"] == 0.003
    assert got["pipetune_own_memory_bytes"] == 50 * 2**20
    assert got["pipetune_up"] == 1


def test_counters_grow_from_window_to_window(exporter: Exporter) -> None:
    for _ in range(3):
        exporter.update(window(stalls=(stall(), stall())))
    got = samples(exporter)
    assert sum(value for name, value in got.items() if name.startswith("pipetune_stalls_total")) == 6
    lost = sum(value for name, value in got.items() if name.startswith("pipetune_lost_seconds_total"))
    assert lost == pytest.approx(3 * 10.0 * 0.6)


def test_what_was_not_measured_is_left_out(exporter: Exporter) -> None:
    exporter.update(
        window(cpu_iowait_pct=None, psi_io_some_pct=None, own_rss_bytes=None, verdicts=(verdict(util_frac=None),))
    )
    names = {name.split("{")[0] for name in samples(exporter)}
    assert not names & {"pipetune_cpu_iowait_ratio", "pipetune_own_memory_bytes", "pipetune_accelerator_busy_ratio"}
    assert 'pipetune_pressure_ratio{resource="io"}' not in samples(exporter)


def test_little_loss_without_shares_counts_as_undetermined(exporter: Exporter) -> None:
    exporter.update(window(verdicts=(verdict(shares=(), lost_frac=0.03),)))
    (lost,) = [value for name, value in samples(exporter).items() if name.startswith("pipetune_lost_seconds_total")]
    assert lost == pytest.approx(0.3)


def test_a_rank_that_has_ended_leaves_nothing_behind(exporter: Exporter) -> None:
    both = (verdict(rank=0, pid=1), verdict(rank=1, pid=2))
    exporter.update(window(verdicts=both, stalls=(stall(rank=1, pid=2),)))
    assert any('rank="1"' in name for name in samples(exporter))
    exporter.update(window(verdicts=both[:1]))
    assert not any('rank="1"' in name for name in samples(exporter))
    assert any('rank="0"' in name for name in samples(exporter))


def test_two_processes_without_a_rank_have_labels_of_their_own(exporter: Exporter) -> None:
    exporter.update(window(verdicts=(verdict(pid=1), verdict(pid=2))))
    assert len([name for name in samples(exporter) if name.startswith("pipetune_lost_ratio")]) == 2


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9400", ("127.0.0.1", 9400)),
        ("0.0.0.0:9400", ("0.0.0.0", 9400)),
        ("[::1]:9400", ("::1", 9400)),
        ("node-7.cluster:80", ("node-7.cluster", 80)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "9400", ":", ":x", ":-1", ":65536", "::1:9400", "host", "a b:1", "[]:1", "http://h:1"]
)
def test_what_is_no_address_is_the_users_mistake(text: str) -> None:
    with pytest.raises(UsageError, match="write it as :9400"):
        start(text)


def test_a_port_in_use_is_one_line_and_closing_frees_it(exporter: Exporter) -> None:
    address = f":{exporter.port}"
    with pytest.raises(PipetuneError, match=f"port {exporter.port} of 127.0.0.1 is in use") as raised:
        start(address)
    assert raised.value.exit_code == 1
    assert "\n" not in str(raised.value)
    exporter.close()
    exporter.close()
    again = start(address)
    assert samples(again) == {"pipetune_up": 1.0}
    again.close()


def test_an_address_of_another_machine_is_refused_in_one_line() -> None:
    with pytest.raises(PipetuneError, match=r"cannot serve Prometheus at 203\.0\.113\.1:9400"):
        start("203.0.113.1:9400")


@pytest.mark.slow
def test_connections_that_say_nothing_take_neither_its_threads_nor_its_place(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.3)
    idle = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(60)]
    try:
        for one in idle[:30]:
            with contextlib.suppress(OSError):  # it was closed already
                one.sendall(b"GET /met")
        threads = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
        assert len(threads) <= metrics_server.MOST_CONNECTIONS
        wait_until(lambda: not [t for t in threading.enumerate() if "process_request_thread" in t.name])
        assert samples(exporter) == {"pipetune_up": 1.0}
    finally:
        for one in idle:
            one.close()


def test_only_the_loopback_is_bound_unless_a_host_is_named(exporter: Exporter) -> None:
    assert exporter._server.server_address[0] == "127.0.0.1"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6() -> None:
    try:
        exporter = start("[::1]:0")
    except PipetuneError as error:
        pytest.skip(f"no IPv6 loopback: {error}")
    with urllib.request.urlopen(f"http://[::1]:{exporter.port}/metrics", timeout=10) as answer:
        assert b"pipetune_up 1.0" in answer.read()
    exporter.close()
