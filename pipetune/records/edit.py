"""Whether a change of the user's settings is proven to be worth it."""

from __future__ import annotations

from dataclasses import dataclass

#: Verdicts on an edit. The first two are proofs.
FASTER, LEANER, UNPROVEN, TOO_NOISY = "faster", "leaner", "unproven", "too_noisy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change from the baseline to another candidate, and what the measurement says of it."""

    key: str
    """Of the candidate."""
    verdict: str
    """``faster``: the interval of the gain lies above 1. ``leaner``: it saves at least one core or a tenth of the
    memory, and is proven to lose no more than 2 % of the rate. ``unproven``: neither. ``too_noisy``: neither, because
    the interval is wider than 25 % to each side even after further blocks."""
    gain: float
    """Rate of the candidate / rate of the baseline, side by side where they were measured so."""
    gain_ci95: tuple[float, float]
    """95 % interval of the gain."""
    saved_cores: float | None
    """Cores that the candidate uses less, in each block at least; below 0: it uses more. ``None``: not known."""
    saved_memory_frac: float | None
    """Share of the baseline's memory (PSS) that it uses less, in each block at least. ``None``: not known."""
    blocks: int
    """So often both were measured side by side."""
    more_blocks: int | None = None
    """So many further blocks are expected to prove the edit, if it has the gain that was measured; ``None``: it is
    proven, or too small to be."""
    more_s: float | None = None
    """Time that these take (s)."""

    @property
    def is_proven(self) -> bool:
        """Whether the edit may be recommended."""
        return self.verdict in (FASTER, LEANER)
