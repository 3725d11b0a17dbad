"""Stalls: when an accelerator was idle, for how long, and why. Readings in, finished stalls out; opens no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipetune.diagnosis import causes
from pipetune.diagnosis.attribution import PAUSES_UNSEEN, attribute_loss
from pipetune.diagnosis.main_thread import shares_of_activities
from pipetune.records.observation import LOADER_WAIT, RankReading
from pipetune.records.watch import Stall

#: A stall begins where the accelerator is busy for less than this share of a reading, and ends where it is busy for
#: more than the second (own). Two limits, so that utilisation that wavers around one of them is one stall and not ten.
BEGINS_BELOW, ENDS_ABOVE = 0.10, 0.25
#: So many of the newest readings of a stall decide its cause.
_MAX_READINGS = 120


class StallTracker:
    """Finds the stalls of one rank, reading by reading."""

    def __init__(self) -> None:
        self._readings: list[RankReading] = []
        self._began_ns: int | None = None
        self._lost_s = 0.0

    @property
    def began_ns(self) -> int | None:
        """When the stall that is going on began; ``None``: there is none."""
        return self._began_ns

    def add(
        self,
        reading: RankReading,
        worker_stacks: Mapping[str, int],
        usual_cause: str | None,
        stacked: Sequence[RankReading] = (),
    ) -> Stall | None:
        """Take the next reading.

        Args:
            reading: covers some time.
            worker_stacks: activity of the loader workers, by their stacks → number of stacks.
            usual_cause: the cause to name where the stall's own readings show none.
            stacked: readings of the same rank with a stack, because few stacks are taken within a stall.

        Returns:
            the stall that has just ended.
        """
        busy = busy_of(reading)
        if self._began_ns is None:
            if busy < BEGINS_BELOW:
                self._began_ns = reading.t_ns - round(1e9 * reading.interval_s)
                self._readings, self._lost_s = [reading], (1 - busy) * reading.interval_s
            return None
        if busy <= ENDS_ABOVE:
            self._readings = [*self._readings, reading][-_MAX_READINGS:]
            self._lost_s += (1 - busy) * reading.interval_s
            return None
        return self.end(reading.t_ns - round(1e9 * reading.interval_s), worker_stacks, usual_cause, stacked)

    def end(
        self,
        t_ns: int,
        worker_stacks: Mapping[str, int],
        usual_cause: str | None,
        stacked: Sequence[RankReading] = (),
    ) -> Stall | None:
        """End the stall that is going on, as when the job or the watch ends; ``None``: there is none."""
        if self._began_ns is None or not self._readings:
            return None
        earlier = [reading for reading in stacked if reading.t_ns < self._readings[0].t_ns]
        stall = Stall(
            rank=self._readings[-1].rank,
            pid=self._readings[-1].pid,
            t_start_ns=self._began_ns,
            t_end_ns=max(t_ns, self._began_ns),
            lost_s=self._lost_s,
            cause=_cause(self._readings, worker_stacks, usual_cause, earlier),
        )
        self._began_ns, self._readings, self._lost_s = None, [], 0.0
        return stall


def busy_of(reading: RankReading) -> float:
    """Share of the interval in which the accelerator worked; where none can be read, in which the loop
    neither waited for a batch nor saved or evaluated.
    """
    if reading.source != LOADER_WAIT and reading.busy_frac is not None:
        return reading.busy_frac
    shares = shares_of_activities([reading])[0]
    return 1.0 - sum(share for name, share in shares.items() if name in PAUSES_UNSEEN)


def _cause(
    readings: Sequence[RankReading],
    worker_stacks: Mapping[str, int],
    usual_cause: str | None,
    earlier: Sequence[RankReading],
) -> str:
    loss = attribute_loss(readings, worker_stacks=worker_stacks, earlier=earlier)
    top = max(loss.shares, key=lambda cause: loss.shares[cause], default=causes.UNDETERMINED)
    if top == causes.UNDETERMINED and usual_cause not in (None, causes.HEALTHY, causes.NOT_STARTED):
        return usual_cause or causes.UNDETERMINED
    return top
