"""What images draw: torchvision's magnitudes and distributions, from seed and index alone."""

from __future__ import annotations

import numpy as np
import pytest

from pipetune.augmentation.draws import JITTER, OPERATIONS, Draws, draw, draw_share
from pipetune.augmentation.recipes import BASIC, COLORJITTER, MIXUP, RANDAUGMENT, TRIVIALAUGMENT

SIZE = 224
MANY = range(28_000)


def by_operation(draws: Draws) -> dict[str, np.ndarray]:
    """Operation -> the values that were drawn with it, in all rounds."""
    return {name: draws.values[draws.operations == number] for number, name in enumerate(OPERATIONS)}


@pytest.mark.parametrize("recipe", [RANDAUGMENT, TRIVIALAUGMENT])
def test_operations_and_magnitudes_are_torchvisions(recipe: str) -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="compared with torchvision")
    theirs = {RANDAUGMENT: v2.RandAugment(magnitude=9), TRIVIALAUGMENT: v2.TrivialAugmentWide()}[recipe]
    assert tuple(theirs._AUGMENTATION_SPACE) == OPERATIONS
    for name, values in by_operation(draw(recipe, 0, MANY, SIZE)).items():
        magnitudes, signed = theirs._AUGMENTATION_SPACE[name]
        expected = magnitudes(31, SIZE, SIZE)
        expected = np.zeros(1) if expected is None else expected.numpy().astype(float)
        expected = expected[9:10] if recipe == RANDAUGMENT and len(expected) > 1 else expected
        drawn = np.unique(np.abs(values).round(4))
        assert drawn == pytest.approx(np.unique(expected.round(4)), abs=2e-4), name
        strong = values[values != 0]
        assert (strong < 0).any() == signed, name
        if signed:
            assert (strong < 0).mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("recipe", "rounds"), [(RANDAUGMENT, 2), (TRIVIALAUGMENT, 1)])
def test_operations_are_drawn_as_often_in_each_round(recipe: str, rounds: int) -> None:
    draws = draw(recipe, 3, MANY, SIZE)
    assert draws.operations.shape == draws.values.shape == (rounds, len(MANY))
    expected = len(MANY) / len(OPERATIONS)
    for operations in draws.operations:
        counts = np.bincount(operations, minlength=len(OPERATIONS))
        chi_squared = float(((counts - expected) ** 2 / expected).sum())
        assert chi_squared < 34.5  # 13 degrees of freedom, p = 0.001; the seed is fixed
    if rounds > 1:
        both = np.bincount(draws.operations[0] * 14 + draws.operations[1], minlength=196)
        assert both.min() > 0.5 * len(MANY) / 196, "the second does not depend on the first"


def test_colours_change_in_any_order_and_by_as_much_as_is_stated() -> None:
    draws = draw(COLORJITTER, 0, MANY, SIZE)
    assert np.abs(draws.values).max() <= JITTER
    assert np.abs(draws.values).mean() == pytest.approx(JITTER / 2, rel=0.02)
    orders = {tuple(OPERATIONS[number] for number in order) for order in draws.operations.T.tolist()}
    assert len(orders) == 6
    assert all(set(order) == {"Brightness", "Contrast", "Color"} for order in orders)


@pytest.mark.parametrize("recipe", [RANDAUGMENT, TRIVIALAUGMENT, COLORJITTER])
def test_what_an_image_draws_does_not_depend_on_others(recipe: str) -> None:
    together = draw(recipe, 5, [7, 1 << 40, 3, 7], SIZE)
    for place, index in enumerate([7, 1 << 40, 3, 7]):
        alone = draw(recipe, 5, [index], SIZE)
        assert (alone.operations[:, 0] == together.operations[:, place]).all()
        assert (alone.values[:, 0] == together.values[:, place]).all()
    assert not (draw(recipe, 6, MANY, SIZE).values == draw(recipe, 5, MANY, SIZE).values).all()


@pytest.mark.parametrize("recipe", [BASIC, MIXUP])
def test_other_recipes_do_nothing_to_single_images(recipe: str) -> None:
    assert draw(recipe, 0, range(4), SIZE).operations.shape == (0, 4)


def test_shares_of_mixed_batches_are_beta_distributed() -> None:
    shares = np.array([draw_share(0, index) for index in range(4000)])
    # Beta(a, a): mean 1/2, variance 1 / (4 (2 a + 1)).
    assert shares.mean() == pytest.approx(0.5, abs=0.02)
    assert shares.var() == pytest.approx(1 / (4 * 1.4), rel=0.05)
    assert draw_share(0, 17) == shares[17]
    assert draw_share(1, 17) != shares[17]
