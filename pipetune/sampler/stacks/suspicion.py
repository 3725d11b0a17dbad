"""Whether a look is worth a stack. Pure."""

from __future__ import annotations

from pipetune.records.watch import RankLook

#: A look that lost less is none to ask about (a twentieth, from which on a job is not healthy).
LEAST_LOST = 0.05


def suspicious(rank: RankLook) -> bool:
    """The accelerator lost more than a twentieth of the interval, or there is none that could tell."""
    if rank.idle_now is not None:
        return rank.idle_now  # exactly: the accelerator stands still at this moment
    if rank.busy_frac is not None:
        return 1 - rank.busy_frac > LEAST_LOST
    return True
