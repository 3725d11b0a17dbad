"""How many batches are kept before they are replayed, to see what the training loop takes at most."""

from __future__ import annotations

from collections.abc import Callable

#: So many batches are kept; of a slow loader so many after some time (s), and of a short epoch this share.
KEEP, LEAST_KEPT, _KEEPING_S, _KEPT_SHARE = 8, 2, 2.0, 1 / 3

#: An epoch of unknown length is let end for so long (s): where repeated batches would end, nothing tells.
MAX_WAIT_FOR_END_S = 5.0


def count_to_keep(length: int | None, delivered: int) -> int:
    """How many batches are kept.

    Args:
        length: batches of the epoch; of ranks, all have equally many. ``None``: not known.
        delivered: of them, to the loop.
    """
    left = KEEP if length is None else round(max(0, length - delivered) * _KEPT_SHARE)
    return min(KEEP, max(LEAST_KEPT, left))


class Keeping:
    """Counts the batches that are still to be kept.

    Args:
        count: so many are.
        now_ns: when it begins.
        knows_length: whether it is known how many batches an epoch has.
    """

    def __init__(self, count: int, now_ns: int, knows_length: Callable[[], bool] = lambda: True) -> None:
        self._left, self._began_ns, self._knows_length = count, now_ns, knows_length
        self._now_ns = now_ns

    @property
    def is_enough(self) -> bool:
        """No other batch is kept."""
        waited_s = (self._now_ns - self._began_ns) / 1e9
        return self._left <= 0 and (waited_s > MAX_WAIT_FOR_END_S or self._knows_length())

    def took(self, now_ns: int, kept: int, *, alone: bool) -> None:
        """A batch is kept.

        Args:
            kept: how many there are with it.
            alone: no other rank has to keep equally many, so that a slow loader may end earlier.
        """
        self._left, self._now_ns = self._left - 1, now_ns
        if alone and now_ns - self._began_ns > _KEEPING_S * 1e9 and kept >= LEAST_KEPT:
            self._left = 0
