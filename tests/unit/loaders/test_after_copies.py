"""When memory comes back, on streams whose progress the tests decide. tests/cuda has real copies."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

from pipetune.decoders.layout import Layout  # noqa: E402
from pipetune.loaders import after_copies, page_locked  # noqa: E402
from pipetune.loaders.after_copies import AfterCopies  # noqa: E402
from pipetune.loaders.buffers import Buffers, SharedRing  # noqa: E402


class Stream:
    """Work that is queued gets numbers; ``ended`` is the last that has ended."""

    def __init__(self) -> None:
        self.queued = 0
        self.ended = 0
        self.lost = False

    def marks(self) -> list[Mark]:
        if self.lost:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return [Mark(self)]


class Mark:
    """An event behind what is queued."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.last = stream.queued

    def query(self) -> bool:
        return self.stream.ended >= self.last

    def synchronize(self) -> None:
        self.stream.ended = max(self.stream.ended, self.last)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    monkeypatch.setattr(AfterCopies, "_marks", lambda _: made.marks())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(after_copies, "wait_for_devices", lambda _: setattr(made, "ended", made.queued))
    monkeypatch.setattr(page_locked, "page_lock", lambda *_: True)
    monkeypatch.setattr(page_locked, "locked_array", lambda shape, dtype, _: np.empty(shape, dtype))
    return made


def lent(copies: AfterCopies, back: list[Any], what: Any) -> Any:
    view = np.empty(4)[:]
    copies.lend(view, back.append, what)
    return torch.from_numpy(view)


def test_memory_comes_back_when_its_copy_has_ended_and_no_tensor_is_left(stream: Stream) -> None:
    copies, back = AfterCopies(0), []
    tensor = lent(copies, back, "batch")
    stream.queued = 1  # the copy
    view = tensor[1:]
    del tensor
    copies.asked()
    stream.ended = 1
    copies.asked()
    assert back == []  # it is kept
    stream.queued = 2  # a step, during which the view goes
    del view
    copies.asked()
    assert back == []
    stream.ended = 2
    copies.asked()
    assert back == ["batch"]


def test_what_was_queued_until_the_next_batch_was_asked_for_counts_as_well(stream: Stream) -> None:
    copies, back = AfterCopies(0), []
    tensor = lent(copies, back, "batch")
    del tensor
    stream.queued = 1  # the current stream is made to wait for the copy on another one
    copies.asked()
    assert back == []
    stream.ended = 1
    copies.asked()
    assert back == ["batch"]


def test_in_a_graph_that_is_captured_the_next_request_decides(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    copies, back = AfterCopies(0), []
    tensor = lent(copies, back, "batch")
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        patch.setattr(AfterCopies, "_marks", lambda _: pytest.fail("an event became part of the graph"))
        del tensor
    stream.queued = 1
    copies.asked()
    assert back == []
    stream.ended = 1
    copies.asked()
    assert back == ["batch"]


def test_of_a_lost_device_nothing_comes_back_and_nothing_is_raised_where_a_batch_is_dropped(stream: Stream) -> None:
    copies, back = AfterCopies(0), []
    tensor = lent(copies, back, "batch")
    stream.lost = True
    del tensor
    copies.asked()
    assert back == []


def test_a_forked_process_gives_nothing_back(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    copies, back = AfterCopies(0), []
    tensor = lent(copies, back, "batch")
    with monkeypatch.context() as patch:
        patch.setattr(after_copies.os, "getpid", lambda: -1)
        patch.setattr(AfterCopies, "_marks", lambda _: pytest.fail("CUDA in a forked process"))
        del tensor
    copies.asked()
    assert back == []


def test_what_is_left_at_the_end_is_waited_for(stream: Stream) -> None:
    copies, back = AfterCopies(0), []
    tensor = lent(copies, back, "batch")
    stream.queued = 3
    del copies
    gc.collect()
    assert stream.ended == 0  # somebody still has the batch
    del tensor
    gc.collect()
    assert stream.ended == 3


def test_a_loop_that_is_far_ahead_waits_for_its_device_and_one_that_keeps_batches_does_not(stream: Stream) -> None:
    ring = SharedRing(Layout(size=4), 2, 4, AfterCopies(0))
    slots = [ring.take() for _ in range(4)]
    kept = [ring.lend(slot, 2) for slot in slots if slot is not None]
    assert ring.take() is None
    for step in range(2):
        kept.pop(0)
        stream.queued = step + 1
        assert ring.take() is None  # two of its batches are on the device, which may be all that it has to do
    kept.pop(0)
    stream.queued = 3
    assert ring.take() == slots[0]
    assert stream.ended == 1
    stream.ended = 3
    assert {ring.take(), ring.take()} == {slots[1], slots[2]}


def test_the_training_loop_itself_gives_back_what_is_free(stream: Stream) -> None:
    batches = Buffers(Layout(size=4), 2, copies=AfterCopies(0))
    array = batches.take()
    tensor = batches.lend(array, 2)
    stream.queued = 1
    del tensor
    assert batches.take() is not array
    stream.ended = 1
    assert batches.take() is array
