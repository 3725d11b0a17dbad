"""Mean power of a GPU over a phase, by the energy counter of its driver. Pure.

The counter is a total that the driver brings up to date every so often. How often is documented nowhere (nvml.h); a
counter that moves more rarely than it is read stands still from one reading to the next, and one that does not moves at
least once between two readings. Either way the longest time from one reading that shows a change to the next is the
most that the period can be. A reading is thus about a moment that lies up to one such period before it. Over a stretch
of time that makes an error of one period at most, both ends together; where that is more than :data:`MAX_ERROR_FRAC`,
nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipetune.records.observation import Reading

#: Largest error of the mean power that may be stated.
MAX_ERROR_FRAC = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanPower:
    """Power of a GPU over a stretch of time."""

    watts: float
    error_frac: float
    """The true mean differs by this share at most, because the counter is late."""


def find_mean_power(readings: Sequence[Reading], span_ns: tuple[int, int]) -> MeanPower | None:
    """The mean power within a phase.

    Args:
        readings: of the whole measurement, oldest first; those before the phase show whether the counter moved.
        span_ns: beginning and end of the phase (monotonic ns).

    Returns:
        ``None``: the GPU has no counter, or the phase is too short for it.
    """
    told = [(r.t_ns, r.gpu.energy_j) for r in readings if r.gpu is not None and r.gpu.energy_j is not None]
    moved = [(later, later[1] > earlier[1]) for earlier, later in pairwise(told)]
    changes = [point for point, has_moved in moved if has_moved and span_ns[0] <= point[0] <= span_ns[1]]
    if len(changes) < 2 or any(later < earlier for (_, earlier), (_, later) in pairwise(told)):
        return None  # a counter that began anew is of another driver
    (began_ns, began_j), (ended_ns, ended_j) = changes[0], changes[-1]
    span_s = (ended_ns - began_ns) / 1e9
    update_s = max(later[0] - earlier[0] for earlier, later in pairwise(changes)) / 1e9
    error_frac = update_s / span_s
    if error_frac > MAX_ERROR_FRAC:
        return None
    return MeanPower(watts=(ended_j - began_j) / span_s, error_frac=error_frac)
