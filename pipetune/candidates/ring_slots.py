"""How many batches loader processes share with the training process, where their memory is used again."""

from __future__ import annotations

from pipetune.records.sweep import Candidate

#: Besides those of the workers: the batch that the training loop works on, and the one before it, which its variables
#: still hold while it asks for the next.
_IN_HAND = 2
#: Steps that a CUDA device may have queued up.
_ON_THE_DEVICE = 2


def ring_slots(candidate: Candidate, *, on_gpu: bool) -> int:
    """Batches that have a place in shared memory."""
    return candidate.num_workers * candidate.prefetch_depth + _IN_HAND + (_ON_THE_DEVICE if on_gpu else 0)
