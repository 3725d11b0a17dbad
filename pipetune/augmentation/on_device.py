"""Augmenting a batch where it is: images that drew the same kind of operation are done together.

Each image has its own draws, as in a worker: nothing is shared in a batch but the call. What the host says of a batch
is copied from page-locked memory, and nothing waits for the device, so that a training loop stays ahead of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from pipetune.augmentation.device_ops import AFFINE, BATCH_OPERATIONS, MOVES, PARAMETERS, compute_parameters
from pipetune.augmentation.draws import OPERATIONS, Draws, draw


class _Group(NamedTuple):
    """Images of a batch with one kind of operation, in one round."""

    operation: str
    places: list[int]
    parameters: list[tuple[float, ...]]


def augment_batch(images: torch.Tensor, recipe: str, seed: int, sample_indices: Sequence[int]) -> torch.Tensor:
    """The images augmented, uint8 ``[B, 3, size, size]`` in new memory; those given are left as they are.

    Args:
        sample_indices: of the images; with the seed they decide what each draws.
    """
    return apply_draws(images, draw(recipe, seed, sample_indices, images.shape[-1]))


def apply_draws(images: torch.Tensor, draws: Draws) -> torch.Tensor:
    """The images with these operations done, in new memory."""
    images = images.clone()
    groups = _groups(draws, images.shape[-1])
    if not groups:
        return images
    places, parameters = _sent(groups, images.device)
    end = 0
    for group in groups:
        begin, end = end, end + len(group.places)
        where = places[begin:end]
        done = BATCH_OPERATIONS[group.operation](images.index_select(0, where), parameters[begin:end])
        images.index_copy_(0, where, done)
    return images


def _groups(draws: Draws, size: int) -> list[_Group]:
    """What is to be done, round after round."""
    groups: list[_Group] = []
    for operations, values in zip(draws.operations.tolist(), draws.values.tolist(), strict=True):
        of_round: dict[str, _Group] = {}
        for place, (number, value) in enumerate(zip(operations, values, strict=True)):
            name = OPERATIONS[number]
            kind = AFFINE if name in MOVES else name
            if kind not in BATCH_OPERATIONS:
                continue
            group = of_round.setdefault(kind, _Group(kind, [], []))
            group.places.append(place)
            group.parameters.append(compute_parameters(name, value, size))
        groups += of_round.values()
    return groups


def _sent(groups: Sequence[_Group], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Places int64 ``[n]`` and parameters float32 ``[n, PARAMETERS]`` of all groups, on the device."""
    places = torch.tensor([place for group in groups for place in group.places])
    rows = np.zeros((len(places), PARAMETERS), np.float32)
    for row, numbers in zip(rows, (numbers for group in groups for numbers in group.parameters), strict=True):
        row[: len(numbers)] = numbers
    parameters = torch.from_numpy(rows)
    if device.type == "cuda":  # from other memory the copy would wait for all steps that are queued
        places, parameters = places.pin_memory(), parameters.pin_memory()
    return places.to(device, non_blocking=True), parameters.to(device, non_blocking=True)
