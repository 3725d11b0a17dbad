"""RECIPES: what ``--augment`` may name. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.records.sweep import AcceleratorSpec, Candidate

#: A random resized crop and a flip, which every loader does while it decodes.
BASIC = "basic"
RANDAUGMENT, TRIVIALAUGMENT, COLORJITTER, MIXUP = "randaugment", "trivialaugment", "colorjitter", "mixup"
#: Where images are augmented: by whatever loads them, or by the accelerator.
WORKER, DEVICE = PLACES = ("worker", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is done to each image after a random resized crop and a flip."""

    name: str
    about: str
    """What it does, for ``--help``."""
    short: str
    """What it does in a few words, for a result."""


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name=BASIC, about="a random resized crop and a flip", short="crop and flip"),
        Recipe(name=RANDAUGMENT, about="RandAugment: two of 14 operations, magnitude 9 of 30", short="RandAugment"),
        Recipe(
            name=TRIVIALAUGMENT,
            about="TrivialAugmentWide: one of 14 operations, any magnitude",
            short="TrivialAugment",
        ),
        Recipe(
            name=COLORJITTER,
            about="ColorJitter: brightness, contrast and saturation by up to 40 %",
            short="ColorJitter",
        ),
        Recipe(name=MIXUP, about="MixUp: each image mixed with another one of its batch (alpha 0.2)", short="MixUp"),
    )
}


def device_augments(accelerator: AcceleratorSpec) -> bool:
    """Whether an accelerator can augment images: a real one, or one whose rate at that was stated."""
    return accelerator.kind != "emulated" or accelerator.augment_samples_per_s is not None


def loaders_recipe(candidate: Candidate, recipe: str) -> str:
    """The part of a recipe that a candidate's loader does: all of it, or crops and flips."""
    return recipe if candidate.transforms_on == WORKER else BASIC


def devices_recipe(candidate: Candidate, recipe: str) -> str:
    """The part of a recipe that is left to the accelerator."""
    return recipe if candidate.transforms_on == DEVICE else BASIC
