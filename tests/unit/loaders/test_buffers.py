from __future__ import annotations

import gc

import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

from pipetune.decoders.layout import Layout  # noqa: E402
from pipetune.loaders.buffers import Buffers, SharedRing  # noqa: E402

LAYOUT = Layout(size=4)


def test_memory_is_used_again_when_the_last_tensor_on_it_is_gone() -> None:
    buffers = Buffers(LAYOUT, 2)
    array = buffers.take()
    array[:] = 7
    tensor = buffers.lend(array, 2)
    view = tensor[1:, 0].reshape(-1)
    del tensor
    gc.collect()
    other = buffers.take()
    assert other is not array
    assert view.tolist() == [7.0] * 16
    del view
    assert buffers.take() is array


def test_what_was_not_lent_can_be_given_back() -> None:
    buffers = Buffers(LAYOUT, 2)
    array = buffers.take()
    buffers.give_back(array)
    assert buffers.take() is array


def test_a_batch_that_is_about_to_come_back_is_waited_for() -> None:
    buffers = Buffers(LAYOUT, 2, enough=1)
    array = buffers.take()
    lent = [buffers.lend(array, 2)]
    # The clock of the wait is ours: the batch comes back at the second poll.
    polls: list[float] = []

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        if len(polls) == 2:
            lent.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipetune.loaders.buffers.time.sleep", sleep)
        assert buffers.take() is array
        assert len(polls) == 2
        # Nobody gives anything back: it is waited for 50 ms in all, then there is one more.
        assert buffers.take() is not array
        assert sum(polls[2:]) == pytest.approx(50e-3)


def test_nobody_waits_for_a_batch_that_he_holds_himself() -> None:
    buffers = Buffers(LAYOUT, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipetune.loaders.buffers.time.sleep", lambda _: pytest.fail("waited"))
        assert buffers.take() is not buffers.take()


def test_the_last_batch_of_an_epoch_may_be_smaller() -> None:
    buffers = Buffers(Layout(size=4, uint8=True, channels_last=True), 3)
    array = buffers.take()
    tensor = buffers.lend(array, 2)
    assert tuple(tensor.shape) == (2, 4, 4, 3)
    assert tensor.dtype == torch.uint8
    assert tensor.data_ptr() == array.ctypes.data


def test_a_ring_has_so_many_slots_and_knows_who_has_them() -> None:
    ring = SharedRing(LAYOUT, 2, slots=3)
    assert ring.memory.is_shared()
    assert [ring.take() for _ in range(4)] == [0, 1, 2, None]
    ring.memory[1] = 5
    kept = ring.lend(1, 2)
    assert float(kept.sum()) == 5 * 2 * 3 * 16
    # The workers were stopped: what they had is free, what the training loop has is not.
    ring.take_back()
    assert {ring.take(), ring.take()} == {0, 2}
    assert ring.take() is None
    del kept
    assert ring.take() == 1
