"""What a watch keeps of its past: the verdicts of closed windows, summed up where they become many, and stalls."""

from __future__ import annotations

from pipetune.diagnosis.combine import whole_run, worst_first
from pipetune.records.watch import Stall, Verdict

#: Windows of one rank that are kept one by one, and stalls.
_MAX_VERDICTS, _MAX_STALLS = 360, 20_000
#: A rank: its process and when that was started (clock ticks after boot), because a PID is used again.
RankKey = tuple[int, int]


class History:
    """Verdicts and stalls of all ranks since the watch began."""

    def __init__(self) -> None:
        self._verdicts: dict[RankKey, list[Verdict]] = {}
        self.stalls: list[Stall] = []
        """The newest that have ended; replaced as a whole."""
        self.stall_count = 0
        self.stalled_s = 0.0
        """Length of all that have ended (s)."""

    def add_verdict(self, key: RankKey, verdict: Verdict) -> None:
        """Keep the verdict of a window."""
        kept = self._verdicts.setdefault(key, [])
        kept.append(verdict)
        if len(kept) > _MAX_VERDICTS:
            # The summary needs no single windows of days ago, only their sum.
            half = _MAX_VERDICTS // 2
            oldest = whole_run(kept[:half])
            kept[:half] = [] if oldest is None else [oldest]

    def add_stalls(self, stalls: list[Stall]) -> None:
        """Keep stalls that have ended."""
        if stalls:
            self.stalls = [*self.stalls, *stalls][-_MAX_STALLS:]
        self.stall_count += len(stalls)
        self.stalled_s += sum(stall.t_end_ns - stall.t_start_ns for stall in stalls) / 1e9

    def summary(self) -> tuple[Verdict, ...]:
        """One verdict per rank over all windows so far, the worst first."""
        wholes = [whole_run(verdicts) for verdicts in self._verdicts.values()]
        return worst_first([verdict for verdict in wholes if verdict is not None])
