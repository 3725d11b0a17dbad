"""Activation checkpointing: a block's activations are computed again in the backward pass instead of being kept.

It saves memory and costs about one more forward pass, as ``torch.utils.checkpoint`` has it. BatchNorm counts each batch
twice in its running statistics, which training does not use.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch
from torch.utils.checkpoint import checkpoint

_LISTS = (torch.nn.Sequential, torch.nn.ModuleList)
#: A list of single layers is worth cutting into segments from so many on.
_LAYERS = 6


def checkpoint_blocks(model: torch.nn.Module) -> int:
    """Have each block of a model computed again in its backward pass; returns how many there are.

    Blocks are what lists of blocks hold: residual blocks, transformer layers. Where a model has none, they are its own
    parts, and a list of single layers (VGG) is cut into as many segments as it has layers to the power of a half, which
    is where memory is least (Chen et al. 2016, "Training deep nets with sublinear memory cost").
    """
    blocks = list(_blocks(model)) or [child for child in model.children() if _composed(child)]
    for block in blocks:
        if _only_layers(block):
            _cut(block)
        else:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return len(blocks)


def _blocks(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for child in module.children():
        inside = isinstance(module, _LISTS) and _composed(child) and not isinstance(child, _LISTS)
        if inside:
            yield child
        else:
            yield from _blocks(child)


def _composed(module: torch.nn.Module) -> bool:
    return next(module.children(), None) is not None


def _only_layers(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Sequential) and not any(map(_composed, module)) and len(module) >= _LAYERS


def _cut(layers: torch.nn.Module) -> None:
    segments = _segments(list(layers.children()))

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        for segment in segments:
            inputs = checkpoint(segment, inputs, use_reentrant=False)
        return inputs

    layers.forward = forward


def _segments(layers: list[torch.nn.Module]) -> list[torch.nn.Sequential]:
    """The layers in pieces of about the same length; none begins with one that would overwrite what was kept."""
    length = max(1, math.ceil(len(layers) / round(math.sqrt(len(layers)))))
    pieces: list[list[torch.nn.Module]] = [[]]
    for layer in layers:
        if len(pieces[-1]) >= length and not getattr(layer, "inplace", False):
            pieces.append([])
        pieces[-1].append(layer)
    return [torch.nn.Sequential(*piece) for piece in pieces]
