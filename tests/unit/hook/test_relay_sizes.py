"""Batches of other sizes in the loop, and the device's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from pipetune.hook import memory_watch as module
from tests.unit.hook.test_relay import END, FakeChannel, Loop, measure


class Memory:
    """Of a device whose memory ends, where it is to."""

    ends = False
    made: ClassVar[list[Memory]] = []
    steps: ClassVar[Callable[[], int]] = staticmethod(lambda: 0)

    def __init__(self, share: float, limit_bytes: int | None) -> None:
        self.share, self.limit_bytes = share, limit_bytes
        self.settled_after: int | None = None
        self.made.append(self)

    def settle(self) -> None:
        self.settled_after = self.steps()

    def ended(self) -> bool:
        assert self.settled_after is not None, "errors that torch has caught itself in the first steps are none"
        return self.ends

    def ended_at_all(self) -> bool:
        return self.ends

    def found(self) -> dict[str, Any]:
        return {"gpu_mem_bytes": 5, "gpu_free_bytes": 8, "gpu_total_bytes": 9}


def of_size(size: int | None, **more: Any) -> dict[str, Any]:
    return {**measure("ceiling"), "batch_size": size, **more}


def sizes(loop: Loop) -> list[set[int]]:
    """Samples of the steps of each measurement."""
    found: list[set[int]] = []
    for message in loop.channel.sent:
        if message["type"] == "first_batch":
            found.append(set())
        if message["type"] == "steps":
            found[-1] |= {row[6] for row in message["rows"]}
    return found


def test_the_loop_gets_batches_of_the_size_that_was_asked_for_and_then_its_own_again() -> None:
    loop = Loop(FakeChannel(of_size(12), of_size(3), of_size(None), measure(workers=1), END))
    loop.run()
    assert sizes(loop) == [{12}, {3}, {4}, {4}]
    assert loop.statuses == [0]
    assert not loop.channel.of("failure")


def test_batches_that_cannot_be_resized_are_a_failure_and_the_loop_waits_on() -> None:
    loop = Loop(FakeChannel(of_size(12), measure(workers=1), END))
    loop.source.kept.resize = lambda *words: (_ for _ in ()).throw(ValueError("no"))  # type: ignore[method-assign]
    loop.run()
    assert [(one["phase"], one["message"]) for one in loop.channel.of("failure")] == [("open", "no")]
    assert len(loop.channel.of("result")) == 1


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> type[Memory]:
    kind = type("Memory", (Memory,), {"made": []})
    monkeypatch.setattr(module, "DeviceMemory", kind)
    return kind


def test_the_memory_comes_with_the_result_and_is_counted_from_a_later_step_on(memory: type[Memory]) -> None:
    loop = Loop(FakeChannel(of_size(12, memory=0.5, memory_limit_bytes=7), of_size(None), END))
    memory.steps = staticmethod(lambda: loop.relay._batches)
    loop.run()
    first, second = loop.channel.of("result")
    assert (first["gpu_mem_bytes"], first["gpu_free_bytes"], first["gpu_total_bytes"]) == (5, 8, 9)
    assert "gpu_mem_bytes" not in second
    (made,) = memory.made
    assert (made.share, made.limit_bytes) == (0.5, 7)
    assert made.settled_after is not None
    assert 2 <= made.settled_after <= 10


def test_memory_that_ends_is_a_failure_also_where_the_loop_goes_on(memory: type[Memory]) -> None:
    memory.ends = True
    loop = Loop(FakeChannel(of_size(12, memory=True), of_size(None), END))
    loop.run()
    (failure,) = loop.channel.of("failure")
    assert (failure["error"], failure["message"]) == ("MemoryError", "CUDA out of memory")
    assert len(loop.channel.of("result")) == 1


def test_a_script_that_saves_because_memory_has_ended_has_said_so_before(memory: type[Memory]) -> None:
    loop = Loop(FakeChannel(of_size(12, memory=True), END))
    for _ in range(8):
        loop.relay.next()
    loop.relay.out_of_memory()
    assert loop.channel.of("failure") == []
    memory.ends = True
    loop.relay.out_of_memory()
    assert [one["message"] for one in loop.channel.of("failure")] == ["CUDA out of memory"]


def test_the_host_and_the_last_batch_of_an_epoch_are_considered(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(FakeChannel(of_size(12, own_batch_size=4), END), ranks=3)
    asked: list[Any] = []
    monkeypatch.setattr(loop.source.kept, "resize", lambda *words: asked.append(words))
    loop.relay.end = loop._leave  # type: ignore[method-assign]
    loop.run()
    assert asked == [(12, 4, 3)]
