"""What hosts cost, also those that can be taken away at any time. Pure.

Such hosts are taken away at random: each with the same probability in every hour. The training of all stops then,
begins again after a while, and computes again what came after its last checkpoint. How long that takes is J. Daly's
complete model without a time for writing the checkpoint ("A higher order estimate of the optimum checkpoint interval
for restart dumps", Future Generation Computer Systems 22, 2006), in which a restart can be interrupted, too.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pipetune.errors import UsageError
from pipetune.units import parse_duration

_HOUR_S = 3600.0
#: A training that takes so many times as long as without losses is as good as one that never ends.
_NEVER = 1000.0
_PRICE = re.compile(r"\s*([^\d\s.,/-]*)\s*([0-9]*\.?[0-9]+)\s*([^\d\s.,/-]*)\s*(?:/|per\s)\s*h(?:our)?\s*")
_LOSS = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*%\s*/\s*h(?:our)?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a host costs, and how often one is lost."""

    per_hour: float | None = None
    spot_per_hour: float | None = None
    currency: str = ""
    lost_per_hour: float = 0.0
    """Probability (0..1) that a host with a spot price is taken away within an hour."""
    checkpoint_s: float | None = None
    """Time of training between two checkpoints; ``None``: an epoch."""
    restart_s: float = 300.0
    """From the loss of a host until the training goes on."""


def prices_of(
    price: str | None, spot: str | None, interruptions: str | None, checkpoint: str | None, restart: str
) -> Prices:  # fmt: skip
    """Prices from the options of that name.

    Raises:
        UsageError: one cannot be read, or has no effect.
    """
    per_hour, currency = (None, "") if price is None else parse_price("--price", price)
    spot_per_hour, spot_currency = (None, "") if spot is None else parse_price("--spot", spot)
    if currency and spot_currency and currency != spot_currency:
        raise UsageError(f"--price is in {currency}, --spot in {spot_currency}", hint="write both in one currency")
    if interruptions is None and checkpoint is not None:
        raise UsageError(f"--checkpoint {checkpoint} is for hosts that are taken away", hint="add --interruptions 5%/h")
    if interruptions is not None and spot is None:
        raise UsageError(f"--interruptions {interruptions} is for hosts with a spot price", hint="add --spot 1.60/h")
    return Prices(
        per_hour=per_hour, spot_per_hour=spot_per_hour, currency=currency or spot_currency,
        lost_per_hour=0.0 if interruptions is None else parse_losses(interruptions),
        checkpoint_s=None if checkpoint is None else parse_duration(checkpoint), restart_s=parse_duration(restart),
    )  # fmt: skip


def parse_price(option: str, text: str) -> tuple[float, str]:
    """``'14.40/h'``, ``'$14.40/h'`` or ``'14.40 EUR/h'`` -> (14.4, ``'$'``, ``'EUR'`` or ``''``).

    Raises:
        UsageError: it is no price per hour.
    """
    found = _PRICE.fullmatch(text)
    if found is None or (found[1] and found[3]) or not 0 < float(found[2]) < 1e6:
        raise UsageError(f"{option} {text!r} is no price of a host per hour", hint=f"write {option} 14.40/h")
    return float(found[2]), found[1] or found[3]


def parse_losses(text: str) -> float:
    """``'5%/h'`` -> 0.05.

    Raises:
        UsageError: it is no share per hour.
    """
    found = _LOSS.fullmatch(text)
    if found is None or not 0 <= float(found[1]) < 100:
        raise UsageError(f"--interruptions {text!r} is no share of hosts per hour", hint="write --interruptions 5%/h")
    return float(found[1]) / 100


def cost_of(seconds: float, hosts: int, per_hour: float) -> float:
    """What so many hosts cost for that time."""
    return seconds / _HOUR_S * hosts * per_hour


def expected_s(work_s: float, hosts: int, lost_per_hour: float, checkpoint_s: float, restart_s: float) -> float:
    """How long a training takes on hosts that can be taken away; infinite where it comes to no end that matters.

    Args:
        work_s: the same without any loss.
        lost_per_hour: probability that one host is lost within an hour.
        checkpoint_s: training between two checkpoints.
        restart_s: from a loss until the training goes on.
    """
    if lost_per_hour <= 0:
        return work_s
    rate_per_s = -hosts * math.log1p(-lost_per_hour) / _HOUR_S  # of losing any of them
    checkpoint_s = min(checkpoint_s, work_s)
    try:
        # Each stretch between checkpoints is begun again until nothing is lost in it.
        each_s = math.expm1(rate_per_s * checkpoint_s) * (1 / rate_per_s) * math.exp(rate_per_s * restart_s)
    except OverflowError:
        return math.inf
    whole_s = work_s / checkpoint_s * each_s
    return whole_s if whole_s < _NEVER * work_s else math.inf
