"""How many batches are kept before they are replayed, to see what the training loop takes at most."""

from __future__ import annotations

#: So many batches are kept; of a slow loader so many after some time (s), and of a short epoch this share.
KEEP, LEAST_KEPT, _KEEPING_S, _KEPT_SHARE = 8, 2, 2.0, 1 / 3


def count_to_keep(left: int | None) -> int:
    """How many batches are kept.

    Args:
        left: batches of the epoch that are left; of ranks, all have equally many. ``None``: not known.
    """
    return KEEP if left is None else min(KEEP, max(LEAST_KEPT, round(left * _KEPT_SHARE)))


class Keeping:
    """Counts the batches that are still to be kept.

    Args:
        count: so many are.
        now_ns: when it begins.
    """

    def __init__(self, count: int, now_ns: int) -> None:
        self._left, self._began_ns = count, now_ns

    @property
    def is_enough(self) -> bool:
        """No other batch is kept."""
        return self._left <= 0

    def took(self, now_ns: int, kept: int, *, alone: bool) -> None:
        """A batch is kept.

        Args:
            kept: how many there are with it.
            alone: no other rank has to keep equally many, so that a slow loader may end earlier.
        """
        self._left -= 1
        if alone and now_ns - self._began_ns > _KEEPING_S * 1e9 and kept >= LEAST_KEPT:
            self._left = 0
