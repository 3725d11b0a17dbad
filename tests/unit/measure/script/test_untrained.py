from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.measure.script.joined import describe_too_few
from pipetune.measure.script.untrained import Untrained, describe_untrained

EVALUATED = Untrained(steps=0, backward=0, batches=0, evaluated=40, elsewhere=False, where="/job/eval.py:9")


def test_a_script_that_only_evaluates_is_told_so_with_its_loader_and_what_serves_it() -> None:
    message, hint = describe_untrained(EVALUATED, "/job")
    assert message == (
        "the script evaluates and does not train: it took 40 batches of the loader at eval.py:9, computed no "
        "gradients, and no optimizer stepped"
    )
    assert hint is not None
    assert "--loader" in hint
    assert "--epochs" not in hint


def test_an_evaluation_that_forgot_no_grad_is_one_too() -> None:
    message, _ = describe_untrained(replace(EVALUATED, batches=1, evaluated=0, where=None), "/job")
    assert message.startswith("the script evaluates and does not train: it took 1 batch of a loader, ")


def test_a_training_with_too_few_batches_is_told_how_many_are_needed() -> None:
    assert describe_untrained(replace(EVALUATED, steps=2, batches=2, evaluated=0), "/job") == (
        describe_too_few(2),
        None,
    )


def test_optimizer_steps_on_features_are_told_apart_from_batches() -> None:
    message, hint = describe_untrained(replace(EVALUATED, steps=50), "/job")
    assert "40 batches of the loader at eval.py:9 with gradients disabled" in message
    assert "its 50 optimizer steps used no batch of them" in message
    assert hint is not None


@pytest.mark.parametrize(("backward", "elsewhere"), [(3, False), (0, True)])
def test_a_training_without_an_optimizer_of_torchs_is_told_after_how_many_batches_it_is_known(
    backward: int, elsewhere: bool
) -> None:
    message, hint = describe_untrained(replace(EVALUATED, backward=backward, elsewhere=elsewhere), "/job")
    assert "recognised after 64 batches" in message
    assert ("computed gradients" in message) == (backward > 0)
    assert hint == "use more data or --epochs"


def test_what_a_process_says_is_read_whatever_it_leaves_out() -> None:
    assert Untrained.from_message({"type": "untrained", "evaluated": 3}) == Untrained(0, 0, 0, 3, False, None)
