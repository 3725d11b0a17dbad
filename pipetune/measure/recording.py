"""Recording: everything that one child sent and the sampler read, before it is summarised."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pipetune.measure.machine_speed import Speed
from pipetune.records.observation import BusySpan, Reading
from pipetune.records.sweep import StepTime
from pipetune.sampler.other_processes import Other

if TYPE_CHECKING:
    from pipetune.machine.nvml.gpu import Gpu


@dataclass(slots=True, kw_only=True)
class Recording:
    """Everything that arrived from one child, as it arrived."""

    warmup: list[StepTime] = field(default_factory=list)
    timed: list[StepTime] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    hello: dict[str, Any] = field(default_factory=dict)
    first_batch: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    speed_after: Speed | None = None
    """``None``: the child ended before it measured the speed again."""
    bad_images: dict[int, str] = field(default_factory=dict)
    """Position of an image -> why it does not decode, from a child that tried every image."""
    forked: bool = False
    """The child is a fork of a server, and no new process."""
    resident_frac: float | None = None
    notes: list[str] = field(default_factory=list)
    busy_spans: tuple[BusySpan, ...] = ()
    """The GPU's utilisation with the times that it is about."""
    others: list[Other] = field(default_factory=list)
    """Other processes that used CPU time while the child ran, the busiest first."""
    stopped: BaseException | None = None
    """Pipetune was asked to stop while the child, which had sent its result, came to its end."""
    other_ranks: dict[int, Recording] = field(default_factory=dict)
    """What arrived from the ranks besides the first one, by their numbers."""

    def of_rank(self, rank: int) -> Recording:
        """What arrived from one rank; of the first it is this one itself."""
        return self.other_ranks.setdefault(rank, Recording()) if rank else self

    def keep_gpu(self, gpu: Gpu, interval_s: float) -> str | None:
        """Keep what a closed GPU has told; return what it could not tell, as a note.

        Args:
            gpu: was read by the sampler, whose thread has ended.
            interval_s: time between two readings that the sampler was asked for (s).
        """
        self.busy_spans = gpu.busy_spans(0)
        return f"GPU readings ended: {gpu.lost}" if gpu.lost else gpu.describe_slow_utilisation(interval_s)

    def take_over(self, other: Recording) -> None:
        """Hold what another one does, in place of its own."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    @property
    def time_to_first_batch_s(self) -> float:
        """Of the slowest rank (s); 0: no batch has come."""
        return max(float(one.first_batch.get("time_to_first_batch_s", 0.0)) for one in self.of_all_ranks)

    @property
    def of_all_ranks(self) -> list[Recording]:
        """What arrived from each rank, in the order of their numbers."""
        return [self, *(self.other_ranks[rank] for rank in sorted(self.other_ranks))]
