from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pipetune.machine.device_events import EventChain

CUDA, XPU = (SimpleNamespace(type=name, index=0) for name in ("cuda", "xpu"))


class Device:
    """A device whose events are reached one millisecond after the other."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.synchronised = 0
        self.options: list[dict[str, Any]] = []
        module = SimpleNamespace(
            Event=self.event, synchronize=self.synchronize, current_stream=lambda device: f"stream of {device.index}"
        )
        self.torch = SimpleNamespace(get_device_module=lambda device: module)

    def event(self, **options: Any) -> Any:
        self.options.append(options)
        made = SimpleNamespace(at_ms=None, stream=None)

        def record(stream: Any) -> None:
            self.now_ms += 1
            made.at_ms, made.stream = self.now_ms, stream

        made.record = record
        made.elapsed_time = lambda later: later.at_ms - made.at_ms
        return made

    def synchronize(self, device: Any) -> None:
        self.synchronised += 1


def test_events_are_placed_on_the_hosts_clock() -> None:
    device = Device()
    chain = EventChain(device.torch, CUDA, clock=lambda: 5_000_000)
    first, second = chain.record(), chain.record()
    assert (chain.ns_of(first), chain.ns_of(second)) == (6_000_000, 7_000_000)
    assert first.stream == "stream of 0"
    assert device.options[0] == {"enable_timing": True, "blocking": True}


def test_only_cuda_is_asked_for_events_that_do_not_keep_a_core_busy() -> None:
    device = Device()
    EventChain(device.torch, XPU, clock=lambda: 0)
    assert {tuple(options) for options in device.options} == {("enable_timing",)}


def test_each_link_begins_at_the_event_before() -> None:
    device = Device()
    chain = EventChain(device.torch, CUDA, clock=lambda: 0)
    first, second = chain.record(), chain.record()
    chain.advance(first, 1_500_000.0)
    assert chain.last_ns == 1_500_000
    assert chain.ns_of(second) == 2_500_000


def test_a_restart_waits_for_the_device() -> None:
    device = Device()
    chain = EventChain(device.torch, CUDA, clock=lambda: round(1e6 * device.now_ms))
    device.now_ms = 100
    synchronised = device.synchronised
    chain.restart()
    assert device.synchronised > synchronised
    assert chain.last_ns >= 100_000_000


def test_the_first_event_is_the_one_that_the_host_saw_soonest() -> None:
    device = Device()
    late_ms = iter((4, 9, 1, 6, 3))

    def synchronize(_: Any) -> None:
        if device.options:  # not before the first event
            device.now_ms += next(late_ms)

    device.torch.get_device_module(CUDA).synchronize = synchronize
    chain = EventChain(device.torch, CUDA, clock=lambda: round(1e6 * device.now_ms))
    assert chain.last_ns == 17_000_000  # recorded at 16 ms, seen at 17
