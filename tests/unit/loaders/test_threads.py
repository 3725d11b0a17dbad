from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

torch = pytest.importorskip("torch", reason="what is tested handles tensors")

from pipetune.loaders import threads  # noqa: E402
from pipetune.loaders.contract import Batch  # noqa: E402
from pipetune.loaders.threads import ThreadLoader  # noqa: E402

ORDER = [[n] for n in range(20)]


def make(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
    return Batch(torch.zeros(1), torch.tensor(sample_indices))


def loader(order: object = ORDER, make: object = make, *, workers: int = 3, depth: int = 2, in_order: bool = True):
    return ThreadLoader(order, make, workers=workers, ahead=workers * depth, in_order=in_order)  # type: ignore[arg-type]


def numbers(batches: object) -> list[int]:
    return [int(batch.labels) for batch in batches]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    gc.collect()
    assert threading.active_count() <= before


def test_batches_come_in_order_however_long_each_takes() -> None:
    def uneven(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        time.sleep(0.01 if sample_indices[0] % 3 == 0 else 0)
        return make(sample_indices, stopped)

    assert numbers(loader(make=uneven)) == list(range(20))


def test_or_as_they_get_ready() -> None:
    first_may_end = threading.Event()

    def first_waits(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        if sample_indices == [0]:
            first_may_end.wait(10)
        return make(sample_indices, stopped)

    ours = loader(make=first_waits, in_order=False)
    got = []
    for batch in ours:
        got.append(int(batch.labels))
        if len(got) == 5:
            first_may_end.set()
    assert sorted(got) == list(range(20))
    assert 0 not in got[:5]


def test_no_more_is_begun_than_there_is_room_for() -> None:
    begun: list[int] = []

    def noted(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        begun.append(sample_indices[0])
        return make(sample_indices, stopped)

    ours = loader(make=noted)
    stream = iter(ours)
    next(stream)
    deadline = time.monotonic() + 10
    while len(begun) < 7 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert len(begun) == 7  # one was taken, and 3 workers x depth 2
    ours.close()


def test_an_error_comes_at_its_place_and_the_rest_after_it() -> None:
    def fifth_fails(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        if sample_indices == [5]:
            raise ValueError("number five")
        return make(sample_indices, stopped)

    ours = loader(make=fifth_fails)
    stream = iter(ours)
    assert numbers(next(stream) for _ in range(5)) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="number five"):
        next(stream)
    ours.close()


def test_an_order_that_fails_does_not_leave_the_loop_waiting() -> None:
    def order() -> Iterator[list[int]]:
        yield [0]
        raise OSError("the list of files is gone")

    class Order:
        def __iter__(self) -> Iterator[list[int]]:
            return order()

    ours = loader(Order(), workers=2)
    stream = iter(ours)
    assert int(next(stream).labels) == 0
    with pytest.raises(OSError, match="the list of files is gone"):
        next(stream)
    ours.close()


def test_closing_does_not_wait_for_the_rest_of_a_batch() -> None:
    def endless(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        while not stopped():
            time.sleep(0.001)
        return make(sample_indices, stopped)

    ours = loader(make=endless)
    iter(ours)
    ours.close()
    with pytest.raises(ValueError, match="closed"):
        iter(ours)


def test_closing_waits_once_for_all_threads_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a mount whose server is gone; a program's end would wait for each of them."""
    server_is_back = threading.Event()

    def stuck(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        server_is_back.wait(60)
        return make(sample_indices, stopped)

    monkeypatch.setattr(threads, "_END_S", 0.1)
    ours = loader(make=stuck, workers=4)
    iter(ours)
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("pipetune-loader")]
    limits: list[float] = []
    join = threading.Thread.join

    def note(thread: threading.Thread, limit: float) -> None:
        limits.append(limit)
        join(thread, limit)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", note)
        ours.close()
    assert limits[0] <= 0.1
    assert limits[1:] == [0.0, 0.0, 0.0]
    server_is_back.set()
    for thread in workers:
        thread.join(30)


def test_one_that_nobody_has_any_more_ends_by_itself() -> None:
    stream = iter(loader())
    next(stream)
    assert threading.active_count() > 1
    del stream


def test_iterating_again_begins_anew() -> None:
    ours = loader()
    assert int(next(iter(ours)).labels) == 0
    assert numbers(ours) == list(range(20))
    ours.close()


def test_in_a_forked_child_it_says_so_and_hangs_nobody() -> None:
    ours = loader()
    stream = iter(ours)
    next(stream)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            next(stream)
        except RuntimeError as error:
            code = 0 if "after the fork" in str(error) else 2
        finally:
            ours.close()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert numbers(stream) == list(range(1, 20))
    ours.close()


def test_one_that_is_collected_in_a_thread_of_its_own_blocks_nobody() -> None:
    held: list[object] = []
    under_way = threading.Event()

    def lets_go(sample_indices: Sequence[int], stopped: Callable[[], bool]) -> Batch:
        if sample_indices == [3]:
            under_way.wait(10)
            held.clear()
        return make(sample_indices, stopped)

    before = threading.active_count()
    held.append(iter(loader(make=lets_go)))
    next(held[0])  # type: ignore[call-overload]
    under_way.set()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert held == []
