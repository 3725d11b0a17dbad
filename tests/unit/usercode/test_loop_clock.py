from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.usercode import loop_clock
from pipetune.usercode.loop_clock import CudaClock, HostClock, clock_for

S = 10**9


def test_on_the_host_the_loops_body_is_the_work() -> None:
    clock = HostClock()
    clock.handed(0, 2 * S, 64)
    (first,) = clock.done(5 * S)
    clock.handed(5 * S, 6 * S, 32)
    (second,) = clock.done(9 * S)

    assert (first.data_wait_s, first.compute_s, first.idle_s, first.samples) == (2.0, 3.0, 0.0, 64)
    assert (second.data_wait_s, second.compute_s, second.idle_s, second.t_end_ns) == (1.0, 3.0, 1.0, 9 * S)
    assert clock.done(10 * S) == clock.drain() == []


@dataclass
class _Device:
    """A CUDA device that works off what is queued: events fire when it reaches them."""

    now_s: float = 100.0
    free_at_s: float = 100.0
    synchronised: int = 0
    pace: float = 1.0
    """Of its clock, against the host's."""
    events: list[Any] = field(default_factory=list)

    def torch(self) -> Any:
        cuda = SimpleNamespace(
            Event=lambda **_: _Event(self), synchronize=self.synchronize, current_stream=lambda _: "stream",
        )  # fmt: skip
        return SimpleNamespace(
            cuda=cuda,
            get_device_module=lambda _: cuda,
            device=lambda kind, index=0: SimpleNamespace(type=kind, index=index),
        )

    def queue(self, seconds: float) -> None:
        self.free_at_s = max(self.free_at_s, self.now_s) + seconds

    def synchronize(self, _: int) -> None:
        self.synchronised += 1
        self.now_s = max(self.now_s, self.free_at_s)

    def clock(self) -> int:
        return round(self.now_s * S)


@dataclass
class _Event:
    device: _Device
    at_s: float = 0.0

    def record(self, stream: str) -> None:
        assert stream == "stream"
        self.at_s = max(self.device.free_at_s, self.device.now_s)

    def query(self) -> bool:
        return self.at_s <= self.device.now_s

    def elapsed_time(self, later: _Event) -> float:
        return 1000 * (later.at_s - self.at_s) * self.device.pace


def step(device: _Device, clock: CudaClock, *, wait_s: float, kernels_s: float) -> list[Any]:
    """The loop waits for its batch, queues the step in no time, and asks for the next one."""
    asked_ns = device.clock()
    device.now_s += wait_s
    clock.handed(asked_ns, device.clock(), 8)
    device.queue(kernels_s)
    return clock.done(device.clock())


def test_a_device_that_is_kept_busy_is_never_idle_though_the_loop_runs_ahead() -> None:
    device = _Device()
    clock = CudaClock(device.torch(), 0, device.clock)
    found = [s for _ in range(10) for s in step(device, clock, wait_s=0.1, kernels_s=1.0)] + clock.drain()

    assert len(found) == 10
    assert [s.compute_s for s in found] == pytest.approx([1.0] * 10)
    assert [s.idle_s for s in found] == pytest.approx([0.0] * 10)
    assert [s.data_wait_s for s in found] == pytest.approx([0.1] * 10)
    assert found[-1].t_end_ns == pytest.approx(110.1 * S)


def test_a_device_that_waits_for_data_is_idle_for_that_long() -> None:
    device = _Device()
    clock = CudaClock(device.torch(), 0, device.clock)
    at_first = device.synchronised
    found = [s for _ in range(5) for s in step(device, clock, wait_s=1.0, kernels_s=0.25)] + clock.drain()

    assert [s.idle_s for s in found] == pytest.approx([0.0] + [0.75] * 4)
    assert [s.compute_s for s in found] == pytest.approx([0.25] * 5)
    assert device.synchronised == at_first + 1  # at the end, never in between


def test_an_evaluation_between_two_epochs_is_no_idle_time() -> None:
    device = _Device()
    cuda, host = CudaClock(device.torch(), 0, device.clock), HostClock()
    found = []
    for _ in range(2):
        cuda.begin(device.clock())
        for _ in range(3):
            found += step(device, cuda, wait_s=0.5, kernels_s=0.25)
        device.queue(20.0)  # the evaluation
        device.now_s += 25.0
    found += cuda.drain()

    assert len(found) == 6
    # The first wait of an epoch, and in each later one what is left of it when the step before has ended.
    assert [s.idle_s for s in found] == pytest.approx([0.0, 0.25, 0.25, 0.5, 0.25, 0.25])

    host.begin(0)
    host.handed(0, S, 8)
    host.done(2 * S)
    host.begin(20 * S)
    host.handed(20 * S, 21 * S, 8)
    assert host.done(22 * S)[0].idle_s == 1.0


def test_steps_are_returned_when_the_device_has_reached_their_end() -> None:
    device = _Device()
    clock = CudaClock(device.torch(), 0, device.clock)

    assert step(device, clock, wait_s=0.0, kernels_s=5.0) == []
    device.now_s += 10
    assert len(step(device, clock, wait_s=0.0, kernels_s=5.0)) == 1


def test_the_clock_is_chosen_by_what_the_program_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Device()
    torch = device.torch()
    torch.cuda.is_available = lambda: True
    torch.cuda.is_initialized = lambda: False
    torch.cuda.current_device = lambda: 3
    torch.device = lambda name, index=None: SimpleNamespace(
        type="cuda", index=int(name.partition(":")[2]) if ":" in name else index
    )
    monkeypatch.setitem(loop_clock.sys.modules, "torch", torch)
    assert isinstance(clock_for(None), HostClock)  # CUDA is there, but nobody has used it
    torch.cuda.is_initialized = lambda: True
    assert isinstance(clock_for(None), CudaClock)
    assert clock_for("cuda").device_index == 3  # type: ignore[attr-defined]
    assert clock_for("cuda:1").device_index == 1  # type: ignore[attr-defined]
    assert isinstance(clock_for("cpu"), HostClock)

    monkeypatch.delitem(loop_clock.sys.modules, "torch")
    assert isinstance(clock_for(None), HostClock)
    with pytest.raises(UsageError, match="device 'cuda', but this program has not imported torch"):
        clock_for("cuda")


@pytest.mark.parametrize("pace", [0.999, 1.001])
def test_a_device_clock_that_drifts_is_held_to_the_hosts(pace: float) -> None:
    """An hour of steps of 0.1 s each, of which the device waits 0.04 s for the batch."""
    device = _Device(pace=pace)
    clock = CudaClock(device.torch(), 0, device.clock)
    steps = []
    for _ in range(36_000):
        steps += step(device, clock, wait_s=0.04, kernels_s=0.06)
        device.synchronize(0)
    assert abs(steps[-1].t_end_ns / S - device.now_s) < 0.15
    late = steps[-1000:]
    assert sum(one.idle_s for one in late) / 1000 == pytest.approx(0.04, rel=0.05)
    assert sum(one.compute_s for one in late) / 1000 == pytest.approx(0.06, rel=0.05)
