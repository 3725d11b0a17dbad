"""Memory for a batch that nobody fills, as torch's collating takes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.utils.data import get_worker_info


def unfilled(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor in new memory: shared with the training process, where a loader worker makes it."""
    made = torch.empty(0, dtype=dtype)
    if get_worker_info() is None:
        return torch.empty(tuple(shape), dtype=dtype)
    size = math.prod(shape) * made.element_size()
    return made.set_(torch.UntypedStorage._new_shared(size)).view(tuple(shape))
