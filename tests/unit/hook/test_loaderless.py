from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pipetune.hook import loaderless
from pipetune.hook.loaderless import STEPS, STEPS_AFTER_LOADER, StepsWithoutLoader


class Tensor:
    """So many numbers, of data or computed with parameters."""

    def __init__(self, numbers: int, *, requires_grad: bool = False) -> None:
        self.numbers, self.requires_grad = numbers, requires_grad

    def numel(self) -> int:
        return self.numbers

    def untyped_storage(self) -> None: ...


def get_batch(numbers: int = 96) -> tuple[Tensor, Tensor]:
    return Tensor(numbers), Tensor(12)


def hand_on() -> dict[str, Any]:
    return {"batch": get_batch()}


def batches() -> Iterator[list[Tensor]]:
    while True:
        yield [Tensor(96)]


def make_mask() -> Tensor:
    return Tensor(100_000)


def forward() -> Tensor:
    make_mask()
    return Tensor(5000, requires_grad=True)


def _wrapped_call_impl() -> Tensor:
    """As torch calls a model."""
    return forward()


def estimate_loss() -> dict[str, Tensor]:
    return {"val": Tensor(1)}


class Training:
    """A loop without a loader."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.steps = StepsWithoutLoader(lambda known: self.told.append(dict(known)))

    def run(self, take: Any, steps: int = STEPS) -> None:
        for _ in range(steps):
            take()
            _wrapped_call_impl()
            estimate_loss()
            self.steps.stepped()


@pytest.fixture
def training() -> Iterator[Training]:
    training = Training()
    yield training
    assert sys.getprofile() is None


@pytest.mark.parametrize(
    "take", [get_batch, hand_on, lambda: [get_batch(), get_batch(8)]], ids=["itself", "handed on", "twice"]
)
def test_the_function_that_makes_the_batches_is_told_with_its_place(training: Training, take: Any) -> None:
    training.run(take)
    (known,) = training.told
    assert (known["steps"], known["function"], known["file"]) == (STEPS, "get_batch", __file__)
    assert known["line"] == get_batch.__code__.co_firstlineno
    assert known["loop"].startswith(f"{__file__}:")


def test_a_generator_may_make_them(training: Training) -> None:
    endless = batches()
    training.run(lambda: next(endless))
    assert training.told[0]["function"] == "batches"


def test_batches_that_no_function_makes_are_told_by_the_place_of_the_loop(training: Training) -> None:
    training.run(lambda: None)
    assert training.told[0]["function"] is None
    assert training.told[0]["loop"].startswith(f"{__file__}:")


def test_fewer_steps_say_nothing_and_more_nothing_new(training: Training) -> None:
    training.run(get_batch, STEPS - 1)
    assert training.told == []
    training.run(get_batch, 3)
    assert len(training.told) == 1


def test_steps_on_batches_of_a_loader_are_not_counted(training: Training) -> None:
    for _ in range(3):
        training.run(get_batch, STEPS - 1)
        training.steps.batch_taken()
    training.run(get_batch, STEPS_AFTER_LOADER - 1)  # an inner loop
    assert training.told == []
    training.run(get_batch, 1)  # the loader was that of an evaluation
    assert training.told[0]["function"] == "get_batch"


def test_once_it_is_known_what_is_trained_on_nothing_is_told(training: Training) -> None:
    training.run(get_batch, STEPS - 1)
    training.steps.end()
    training.run(get_batch)
    assert training.told == []


def test_a_profiler_of_the_scripts_is_left_alone(training: Training) -> None:
    calls: list[str] = []
    profiler = lambda frame, event, argument: calls.append(event)  # noqa: E731 - compared by identity
    sys.setprofile(profiler)
    try:
        training.run(get_batch)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert training.told[0]["function"] is None


def test_a_thread_that_steps_is_watched_itself(training: Training) -> None:
    thread = threading.Thread(target=training.run, args=(get_batch,))
    thread.start()
    thread.join()
    assert training.told[0]["function"] == "get_batch"


def test_libraries_and_pipetune_are_not_the_users() -> None:
    assert loaderless.is_users("/job/train.py")
    for file in ("<string>", "/v/lib/python3.12/random.py", "/v/site-packages/a.py", loaderless.__file__):
        assert not loaderless.is_users(file)
