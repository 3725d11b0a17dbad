from __future__ import annotations

import pytest

from pipetune.hook.which import CONFIRMATIONS, WITHOUT_OPTIMIZER, WhichTrains

TRAIN, OTHER = 1, 2


def ask(which: WhichTrains, loader: int, *, gradients: bool = True, first: bool = False) -> bool:
    return which.asked(loader, gradients=gradients, first=first)


def test_a_loader_with_a_step_after_each_of_its_batches_is_trained_on() -> None:
    which = WhichTrains()
    known = [ask(which, TRAIN, first=True)]
    for _ in range(CONFIRMATIONS):
        which.stepped()
        known.append(ask(which, TRAIN))
    assert known == [False] * CONFIRMATIONS + [True]
    assert which.trained_on() == [TRAIN]


@pytest.mark.parametrize(("steps", "batches"), [(2, 1), (1, 4)], ids=["two optimizers", "accumulation"])
def test_it_matters_not_how_many_steps_or_batches_go_together(steps: int, batches: int) -> None:
    which = WhichTrains()
    asked = 0
    while not ask(which, TRAIN, first=asked == 0):
        asked += 1
        for _ in range(steps if asked % batches == 0 else 0):
            which.stepped()
    assert asked == CONFIRMATIONS * batches


def test_one_that_is_evaluated_between_epochs_of_another_is_not() -> None:
    which = WhichTrains()
    for epoch in range(5):
        for batch in range(2):  # too short to be recognised within an epoch
            ask(which, TRAIN, first=batch == 0)
            which.stepped()
        for batch in range(50):
            assert not ask(which, OTHER, gradients=False, first=batch == 0), epoch
    assert which.trained_on() == [TRAIN]


def test_steps_between_two_epochs_of_one_with_a_single_batch_show_nothing() -> None:
    which = WhichTrains()
    for _ in range(10):
        assert not ask(which, OTHER, gradients=False, first=True)
        which.stepped()
    assert which.trained_on() == []


def test_without_any_optimizer_many_batches_with_gradients_show_it() -> None:
    which = WhichTrains()
    known = []
    for number in range(WITHOUT_OPTIMIZER + 1):
        known.append(ask(which, TRAIN, first=number == 0))
        which.computed_gradients()
    assert known == [False] * WITHOUT_OPTIMIZER + [True]
    assert which.trained_on() == []


def test_a_backward_pass_after_several_batches_takes_as_many_of_them() -> None:
    which = WhichTrains()
    asked = 0
    while not ask(which, TRAIN, first=asked == 0):
        asked += 1
        if asked % 4 == 0:
            which.computed_gradients()
    assert asked == 4 * WITHOUT_OPTIMIZER


def test_a_pass_over_the_data_that_computes_no_gradients_does_not() -> None:
    which = WhichTrains()
    for epoch in range(2):  # of the mean, and of the deviation from it
        for batch in range(10 * WITHOUT_OPTIMIZER):
            assert not ask(which, OTHER, first=batch == 0), epoch
    for _ in range(CONFIRMATIONS):
        assert not ask(which, TRAIN)
        which.stepped()
    assert ask(which, TRAIN)


def test_of_another_framework_batches_are_enough() -> None:
    which = WhichTrains()
    known = [which.asked(TRAIN, gradients=True, elsewhere=True) for _ in range(WITHOUT_OPTIMIZER + 1)]
    assert known == [False] * WITHOUT_OPTIMIZER + [True]


@pytest.mark.parametrize("interrupted", ["another loader", "no gradients", "a step"])
def test_those_batches_have_to_come_in_a_row(interrupted: str) -> None:
    which = WhichTrains()
    for _ in range(WITHOUT_OPTIMIZER):
        ask(which, TRAIN)
        which.computed_gradients()
    if interrupted == "a step":
        which.stepped()
    elif interrupted == "no gradients":
        ask(which, TRAIN, gradients=False)
    else:
        ask(which, OTHER, gradients=False)
    assert not ask(which, TRAIN)


def test_of_several_that_are_trained_on_the_first_asked_for_comes_first() -> None:
    which = WhichTrains()
    for number in range(5):
        ask(which, TRAIN, first=number == 0)
        ask(which, OTHER, first=number == 0)
        which.stepped()
    assert which.trained_on() == [TRAIN, OTHER]
    assert which.describe()["steps"] == 5
