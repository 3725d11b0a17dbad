"""Host 0 and the others, in threads of one process over a real store on the loopback; what they measure is replayed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="hosts agree by its store")

from pipetune.datasets.index import ImageFile, ImageSet, read_index, write_index
from pipetune.errors import Interrupted, PipetuneError, UsageError
from pipetune.hosts import agent as agents
from pipetune.hosts import coordinator as coordinators
from pipetune.hosts import heart as hearts
from pipetune.hosts.coordinator import Coordinator
from pipetune.hosts.place import HostPlace
from pipetune.hosts.start import about_this_host
from pipetune.hosts.store import open_stores
from pipetune.measure.conditions import Conditions
from pipetune.measure.fork_servers import ForkServers
from pipetune.measure.recording import Recording
from pipetune.records.sweep import AcceleratorSpec, Candidate, Outcome
from tests import fakes
from tests.unit.hosts.test_tasks import WORKLOAD, step

CANDIDATE = fakes.outcome().candidate
Replay = Callable[..., tuple[Outcome, Recording]]


def replay(rate: float, seen: list[Conditions] | None = None) -> Replay:
    """Measures nothing: the rate is known."""

    def measure(candidate: Candidate, role: str, conditions: Conditions, **known: Any) -> tuple[Outcome, Recording]:
        if seen is not None:
            seen.append(conditions)
        assert conditions.on_ready is not None
        conditions.on_ready()
        ceiling = known.get("ceiling")
        full = rate if ceiling is None else ceiling.samples_per_s
        goodput = {"goodput": None} if ceiling is None else {}
        outcome = replace(fakes.outcome(rate=rate, ceiling=full, role=role, **goodput), candidate=candidate)
        return outcome, Recording(warmup=[step(10**9)], timed=[step(4 * 10**9)])

    return measure


@pytest.fixture
def conditions(tmp_path: Path) -> Conditions:
    images = tuple(
        ImageFile(
            path=str(tmp_path / f"{number}.jpg"),
            label=0,
            width=8,
            height=8,
            size_bytes=1,
            orientation=1,
            format="JPEG",
            progressive=False,
        )
        for number in range(8)
    )
    for image in images:
        Path(image.path).write_bytes(b"x")
    found = ImageSet(name="few", root=str(tmp_path), classes=("a",), images=images, found_images=8)
    write_index(str(tmp_path / "index.json"), found)
    return Conditions(
        workload=replace(WORKLOAD, index_path=str(tmp_path / "index.json"), ranks=1), paths=found.files,
        cores=frozenset({0}),
    )  # fmt: skip


class NoServers(ForkServers):
    """Nothing is measured that would need one."""

    def begin(self, accelerator: AcceleratorSpec) -> None:
        pass


class Others:
    """Hosts besides the first, each a thread."""

    def __init__(self, port: int, hosts: int, measure: dict[int, Replay]) -> None:
        self.ended: dict[int, Any] = {}
        self.said: list[str] = []
        places = {host: HostPlace(host=host, hosts=hosts, address="127.0.0.1", port=port) for host in measure}
        self._threads = [
            threading.Thread(target=self._serve, args=(places[host], one)) for host, one in measure.items()
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self, place: HostPlace, measure: Replay) -> None:
        try:
            self.ended[place.host] = agents.serve(
                place, self.said.append, wait_s=20, measure=measure, servers_of=NoServers
            )
        except BaseException as error:
            self.ended[place.host] = error

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(timeout=30)
            assert not thread.is_alive()


@contextmanager
def hosts(
    port: int, measure: dict[int, Replay], own: Replay, *, count: int | None = None, wait_s: float = 20.0,
    about: dict[str, Any] | None = None,
) -> Iterator[tuple[Coordinator, Others]]:  # fmt: skip
    number = count or len(measure) + 1
    place = HostPlace(host=0, hosts=number, address="127.0.0.1", port=port)
    others = Others(port, number, measure)
    try:
        with Coordinator(place, about or about_this_host(), wait_s=wait_s, measure=own) as together:
            yield together, others
    finally:
        others.wait()


def test_all_measure_their_part_of_the_images_and_the_slowest_decides(port: int, conditions: Conditions) -> None:
    seen: dict[int, list[Conditions]] = {0: [], 1: [], 2: []}
    files: list[set[str]] = []

    def keeping(host: int, rate: float) -> Replay:
        inner = replay(rate, seen[host])

        def measure(candidate: Candidate, role: str, given: Conditions, **known: Any) -> tuple[Outcome, Recording]:
            files.append({image.path for image in read_index(given.workload.index_path).images})
            return inner(candidate, role, given, **known)

        return measure

    with hosts(port, {1: keeping(1, 700.0), 2: keeping(2, 900.0)}, keeping(0, 800.0)) as (together, others):
        ceiling, _ = together.measure(CANDIDATE, "ceiling", conditions)
        outcome, _ = together.measure(CANDIDATE, "candidate", conditions, ceiling=ceiling.measurement, question="none")
    assert others.ended == {1: 2, 2: 2}
    m = outcome.measurement
    assert m is not None
    assert m.goodput == 1.0
    assert sorted(share.samples_per_s for share in m.hosts) == [700, 800, 900]
    assert ceiling.measurement is not None
    assert ceiling.measurement.samples_per_s == 700
    assert set.union(*files) == set(conditions.paths)
    assert {len(part) for part in files} == {3}
    assert others.said[0].startswith("host ")


def test_host_1_listens_at_the_address_that_was_named_alone(port: int, conditions: Conditions) -> None:
    with hosts(port, {1: replay(1.0)}, replay(1.0)):
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        listening = [line.split()[1] for line in lines if line.split()[3] == "0A"]
    assert [address for address in listening if int(address.split(":")[1], 16) == port] == [f"0100007F:{port:04X}"]


def test_images_that_were_replaced_reach_all(port: int, conditions: Conditions) -> None:
    seen: list[Conditions] = []
    with hosts(port, {1: replay(1.0, seen)}, replay(1.0)) as (together, _):
        together.measure(CANDIDATE, "candidate", conditions)
        images = read_index(conditions.workload.index_path)
        write_index(conditions.workload.index_path, replace(images, images=images.images[:4]))
        together.measure(CANDIDATE, "candidate", conditions)
    assert [len(one.paths) for one in seen] == [4, 2]


def test_no_code_comes_over_the_network(port: int, conditions: Conditions) -> None:
    seen: list[Conditions] = []
    asked = replace(conditions, workload=replace(conditions.workload, loader_path="/tmp/loader.pkl"))
    with hosts(port, {1: replay(1.0, seen)}, replay(1.0)) as (together, _):
        together.measure(CANDIDATE, "candidate", asked)
    assert [one.workload.loader_path for one in seen] == [None]


def test_a_host_that_does_not_come_is_named(port: int) -> None:
    with (
        pytest.raises(PipetuneError, match=r"host 3 of 3 did not come within 1 s"),
        hosts(port, {1: replay(1.0)}, replay(1.0), count=3, wait_s=1.0),
    ):
        pytest.fail("it has not come")


def test_other_versions_are_refused(port: int) -> None:
    with (
        pytest.raises(UsageError, match=r"torch is .* on .*, 1.0 here; install the same on all hosts"),
        hosts(port, {1: replay(1.0)}, replay(1.0), about={**about_this_host(), "torch": "1.0"}),
    ):
        pytest.fail("they differ")


def test_a_data_set_that_is_not_there_is_a_failure_of_that_host(
    port: int, conditions: Conditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_missing", lambda paths: "/data/x.jpg")
    with hosts(port, {1: replay(1.0)}, replay(1.0)) as (together, _):
        outcome, _ = together.measure(CANDIDATE, "candidate", conditions)
    assert outcome.failure is not None
    assert "'/data/x.jpg' is not there" in outcome.failure.message
    assert outcome.failure.hint is not None


def test_a_host_that_is_interrupted_ends_the_measurement_with_its_name(
    port: int, conditions: Conditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearts, "BEAT_S", 0.1)

    def interrupted(*_: Any, **__: Any) -> tuple[Outcome, Recording]:
        raise Interrupted(15)

    with hosts(port, {1: interrupted}, replay(1.0)) as (together, others):
        with pytest.raises(PipetuneError, match=r"\(host 2\) has left: it was interrupted; what was measured is kept"):
            together.measure(CANDIDATE, "candidate", conditions)
        others.wait()
        assert isinstance(others.ended[1], Interrupted)


def test_a_host_that_no_longer_answers_is_named(
    port: int, conditions: Conditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "LOST_S", 0.5)
    blocked = threading.Event()

    def hangs(*_: Any, **known: Any) -> tuple[Outcome, Recording]:
        blocked.wait(20)
        return replay(1.0)(*_, **known)

    monkeypatch.setattr(hearts, "BEAT_S", 60.0)  # nor does its heart beat
    with hosts(port, {1: hangs}, replay(1.0)) as (together, others):
        with pytest.raises(PipetuneError, match=r"has not answered for 0 s"):
            together.measure(CANDIDATE, "candidate", conditions)
        blocked.set()
    assert isinstance(others.ended[1], PipetuneError)


def test_where_host_1_is_interrupted_the_others_say_so(port: int, conditions: Conditions) -> None:
    def interrupted(*_: Any, **__: Any) -> tuple[Outcome, Recording]:
        raise KeyboardInterrupt

    with hosts(port, {1: replay(1.0)}, interrupted) as (together, others), pytest.raises(KeyboardInterrupt):
        together.measure(CANDIDATE, "candidate", conditions)
    assert str(others.ended[1]).startswith("host 1 was stopped: it was interrupted")


def test_a_store_that_nobody_keeps_is_said(port: int) -> None:
    place = HostPlace(host=1, hosts=2, address="127.0.0.1", port=port)
    with pytest.raises(PipetuneError, match=rf"host 1 does not answer at 127.0.0.1:{port} within 1 s: Connection"):
        agents.serve(place, lambda line: None, wait_s=1.0, measure=replay(1.0))


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = HostPlace(host=0, hosts=2, address="127.0.0.1", port=taken.getsockname()[1])
        with (
            pytest.raises(PipetuneError, match=r"cannot listen at 127.0.0.1:\d+: Address already in use"),
            Coordinator(place, about_this_host()),
        ):
            pytest.fail("it is taken")


def test_what_an_earlier_start_has_left_is_nobody(port: int, conditions: Conditions) -> None:
    """As torchrun's store, which outlives a restart of its processes."""
    kept, _ = open_stores(HostPlace(host=0, hosts=1, address="127.0.0.1", port=port), 5.0)
    kept.put("hello/1", "a process that has gone")
    kept.within("an earlier session").put("end", {"why": "it was interrupted"})
    place = HostPlace(host=0, hosts=2, address="127.0.0.1", port=port, has_store=True)
    others = Others(port, 2, {1: replay(700.0)})
    with Coordinator(place, about_this_host(), wait_s=20, measure=replay(800.0)) as together:
        outcome, _ = together.measure(CANDIDATE, "candidate", conditions)
    others.wait()
    assert others.ended == {1: 1}
    assert outcome.measurement is not None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), PipetuneError("the disk is full")])
def test_a_sweep_that_fails_elsewhere_is_told_to_all(port: int, error: BaseException) -> None:
    said = "it was interrupted" if isinstance(error, KeyboardInterrupt) else "the disk is full"
    with pytest.raises(type(error)), hosts(port, {1: replay(1.0)}, replay(1.0)) as (_, others):
        raise error
    assert str(others.ended[1]).startswith(f"host 1 was stopped: {said}")


def test_what_ends_without_an_exception_is_told_as_well(port: int) -> None:
    with hosts(port, {1: replay(1.0)}, replay(1.0)) as (together, others):
        together.stopped("cannot measure what GPU takes at most")
        together.stopped(None)
    assert str(others.ended[1]).startswith("host 1 was stopped: cannot measure what GPU takes at most")
