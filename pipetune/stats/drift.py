"""Drift: whether the machine's speed changed between two readings. Pure."""

from __future__ import annotations

#: Largest share by which the two readings of one candidate may differ before its measurement gets a warning. Of 80
#: pairs on a shared two-core machine (benchmarks/measuring/noise_floor.py) one in eight differed by more than 10 %,
#: without any relation to the rate between them, and one in forty by more than 15 %; a competing process on each core
#: halves it.
DRIFT_LIMIT = 0.15


def relative_change(before: float, after: float) -> float:
    """``after / before - 1``: -0.2 when the machine became a fifth slower. Its size is compared with DRIFT_LIMIT.

    Raises:
        ValueError: ``before`` is not above zero.
    """
    if not before > 0:
        raise ValueError(f"a machine speed is above zero, got {before}")
    return after / before - 1
