"""What keeps a rank from its GPU's full speed without a part of its job in it: heat, power, other processes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.diagnosis import causes
from pipetune.records.observation import GpuReading, RankReading
from pipetune.stats.intervals import mean
from pipetune.units import whole_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuContext:
    """Means over the readings of a window that have them; ``None``: not measured."""

    slowed_frac: float | None
    """Share of the time in which heat or the hardware itself held the clocks down."""
    power_capped_frac: float | None
    """Share of the time at the power limit."""
    clock_frac: float | None
    """The multiprocessors' clock, of their highest."""
    power_limit_w: float | None
    sharers: tuple[str, ...] = ()
    """Other processes that compute on it, as the newest reading that knows of any names them."""
    others_frac: float | None = None
    """Share of the time in which they do."""

    @staticmethod
    def of(readings: Sequence[RankReading]) -> GpuContext:
        """Sum up a window."""
        gpus = [reading.gpu for reading in readings if reading.gpu is not None]
        sharing = [reading.sharing for reading in readings if reading.sharing is not None]
        slowed_pct, capped_pct = mean(gpu.slowed_pct for gpu in gpus), mean(gpu.power_capped_pct for gpu in gpus)
        return GpuContext(
            slowed_frac=None if slowed_pct is None else slowed_pct / 100,
            power_capped_frac=None if capped_pct is None else capped_pct / 100,
            clock_frac=mean(_clock_frac(gpu) for gpu in gpus),
            power_limit_w=mean(gpu.power_limit_w for gpu in gpus),
            sharers=sharing[-1].processes if sharing else (),
            others_frac=mean(known.others_frac for known in sharing),
        )

    @property
    def is_slowed(self) -> bool:
        """Its clocks are held down by what is a fault, for long enough to be named."""
        return self.slowed_frac is not None and self.slowed_frac >= causes.THROTTLED_FRAC

    @property
    def is_power_capped(self) -> bool:
        """It was at its power limit for long enough to be mentioned."""
        return self.power_capped_frac is not None and self.power_capped_frac >= causes.THROTTLED_FRAC

    @property
    def is_shared(self) -> bool:
        """Others compute on it, or might: the driver does not tell how much."""
        return bool(self.sharers) and (self.others_frac is None or self.others_frac >= causes.SHARED_FRAC)

    @property
    def share_is_unknown(self) -> bool:
        """The GPU's figures are all that there is of this job's part."""
        return self.is_shared and self.others_frac is None

    @property
    def others(self) -> str:
        """``'notebook (4711)'``, ``'notebook (4711) and 2 more'``."""
        more = len(self.sharers) - 1
        return f"{self.sharers[0]} and {more} more" if more > 0 else "".join(self.sharers) or "the other process"

    @property
    def share_remark(self) -> str | None:
        """Who else uses the GPU, for the sentence; ``None``: nobody that matters."""
        if not self.is_shared:
            return None
        if self.others_frac is None:
            return f"{self.others} may compute on this GPU as well"
        computes = "computes" if len(self.sharers) == 1 else "compute"
        return f"{self.others} {computes} on this GPU {whole_percent(self.others_frac)} of the time"

    @property
    def power_remark(self) -> str | None:
        """``'at 76 % of its highest clock: power limit 72 W'``; ``None``: it is not at its limit, or nobody knows."""
        if not self.is_power_capped:
            return None
        watts = "" if self.power_limit_w is None else f"{self.power_limit_w:.0f} W"
        if self.clock_frac is None:
            return f"held by its power limit of {watts}" if watts else "held by its power limit"
        return f"at {whole_percent(self.clock_frac)} of its highest clock: power limit {watts}".rstrip()


def _clock_frac(gpu: GpuReading) -> float | None:
    return gpu.sm_clock_mhz / gpu.max_sm_clock_mhz if gpu.sm_clock_mhz and gpu.max_sm_clock_mhz else None
