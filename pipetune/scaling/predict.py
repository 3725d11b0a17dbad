"""Rates with more accelerators and hosts than were measured. Pure.

On one host the model of ``pipetune whatif --ranks`` predicts them: ranks share cores and storage. Across hosts each
has its own, and a step takes longer than on one host by two things:

- the slowest of more accelerators is slower. What they waited for each other on one host grows as the largest of so
  many normally distributed times lies above their mean (Blom, "Statistical Estimates and Transformed Beta-Variables",
  1958);
- gradients go from host to host: b (H - 1)/H for H hosts, as in a ring, where each sends (H - 1)/H of the gradients
  twice, however many there are (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
  workstations", J. Parallel and Distributed Computing 69, 2009). b is fitted to the runs across hosts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from pipetune.records.prediction import Prediction
from pipetune.scaling.points import Point

#: Relative half of the 90 % interval for twice as many hosts as were measured; four times as many have sqrt(2) times
#: it, and so on. The nine predictions from 32 accelerators for 64, 128 and 256 of benchmarks/search/
#: scaling_prediction.py are off by 0.5 to 4.7 %, and lie inside.
ERROR_PER_DOUBLING = 0.03
#: Share of the rate that communication may take where no run across hosts was measured: from one host of 16
#: accelerators to 16 hosts the same table lost 2.9 to 8.8 %.
UNKNOWN_COMMUNICATION = 0.09
#: Hosts that get less than this share of what one gets alone share what limits them.
_SHORT = 0.95
#: Share of an interval of 95 % that one of 90 % has, of normally distributed errors.
_OF_95 = 1.645 / 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What one host does with as many accelerators as each has."""

    accelerators: int
    samples_per_s: float
    half90: float
    """Relative half of the 90 % interval of the rate."""
    others_wait_frac: float | None
    """``None``: it is not known, and counts as none."""
    source: str
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """A rate across hosts, and which share of the time is due to them."""

    samples_per_s: float
    interval90: tuple[float, float]
    others_wait_frac: float | None
    communication_frac: float | None
    """``None``: it is not known, and counts as none."""
    source: str


def slowest_of(count: int) -> float:
    """How many standard deviations the largest of so many normally distributed values lies above their mean."""
    return max(0.0, NormalDist().inv_cdf((count - 0.375) / (count + 0.25)))


def measured_host(points: Sequence[Point], per_host: int) -> Host | None:
    """One whole host, as it was measured; ``None``: it was not."""
    for point in points:
        if point.hosts == 1 and point.accelerators == per_host:
            low, high = point.ci95 or (point.samples_per_s, point.samples_per_s)
            return Host(
                accelerators=per_host, samples_per_s=point.samples_per_s,
                half90=_OF_95 * (high - low) / 2 / point.samples_per_s,
                others_wait_frac=point.others_wait_frac, source=point.source, measured=True,
            )  # fmt: skip
    return None


def predicted_host(prediction: Prediction, per_host: int, point: Point) -> Host:
    """The same from the model of one host, and the run that it starts from."""
    low, high = prediction.interval90
    waited, first = point.others_wait_frac, slowest_of(point.accelerators)
    return Host(
        accelerators=per_host, samples_per_s=prediction.samples_per_s,
        half90=(high - low) / 2 / prediction.samples_per_s, source=point.source, measured=False,
        others_wait_frac=None if waited is None or not first else min(0.5, waited * slowest_of(per_host) / first),
    )  # fmt: skip


def whole_hosts(host: Host, points: Sequence[Point]) -> list[Point]:
    """Runs across hosts that used all accelerators of each, and exchanged gradients."""
    return [
        point for point in points
        if point.hosts > 1 and not point.separate and point.accelerators == point.hosts * host.accelerators
    ]  # fmt: skip


def ring_s(host: Host, points: Sequence[Point]) -> float | None:
    """The b of this module's formula: seconds per sample of one accelerator, by least squares.

    ``None``: no run across hosts was measured.
    """
    rows = [(share_of(point.hosts),
             each_s(point.accelerators, point.samples_per_s) - waiting_s(host, point.accelerators))
            for point in whole_hosts(host, points)]  # fmt: skip
    if not rows:
        return None
    alone = each_s(host.accelerators, host.samples_per_s)
    return max(0.0, sum(share * (longer - alone) for share, longer in rows) / sum(share**2 for share, _ in rows))


def across(host: Host, points: Sequence[Point], hosts: int) -> Across:
    """The rate of so many whole hosts.

    Args:
        points: all that were measured.
    """
    ring = ring_s(host, points)
    count = hosts * host.accelerators
    alone = each_s(host.accelerators, host.samples_per_s)
    waiting = waiting_s(host, count)
    sent = 0.0 if ring is None else ring * share_of(hosts)
    longer = alone + waiting + sent
    rate = count / longer
    whole = whole_hosts(host, points)
    nearest = max((point.hosts for point in whole if point.hosts <= hosts), default=1)
    half = math.hypot(host.half90, ERROR_PER_DOUBLING * math.sqrt(math.log2(max(1.0, hosts / nearest))))
    half = math.hypot(half, waiting / longer / 2)
    lost = UNKNOWN_COMMUNICATION * share_of(hosts) if ring is None else 0.0
    known = [f"{point.accelerators} accelerators in {point.hosts} hosts" for point in whole]
    return Across(
        samples_per_s=rate, interval90=(rate * max(0.0, 1 - half - lost), rate * (1 + half)),
        others_wait_frac=None if host.others_wait_frac is None
        else (host.others_wait_frac * alone + waiting) / longer,
        communication_frac=None if ring is None else sent / longer,
        source=f"one host, as {'measured' if host.measured else 'predicted'}" + (f", and {known[-1]}" if known else ""),
    )  # fmt: skip


def capped_by_storage(found: Across, host: Host, points: Sequence[Point]) -> tuple[Across, Point | None]:
    """The rate, no higher than what shared storage gave to hosts that were measured together, and the run that says so.

    Where those got clearly less than as many hosts alone, storage limits them, and more hosts get no more of it.
    """
    limits = [
        point for point in points
        if point.apart_samples_per_s is not None and point.accelerators == point.hosts * host.accelerators
        and short_of(host, point) < _SHORT - host.half90
    ]  # fmt: skip
    limit = min(limits, key=lambda point: point.apart_samples_per_s or math.inf, default=None)
    if limit is None or limit.apart_samples_per_s is None or found.samples_per_s <= limit.apart_samples_per_s:
        return found, None
    less = limit.apart_samples_per_s / found.samples_per_s
    low, high = found.interval90
    return replace(
        found, samples_per_s=limit.apart_samples_per_s, interval90=(less * low, less * high),
        source=f"{found.source}; no more than {limit.hosts} hosts got",
    ), limit  # fmt: skip


def short_of(host: Host, together: Point) -> float:
    """What each of several hosts got, as a share of one alone."""
    return (together.apart_samples_per_s or 0.0) / (together.hosts * host.samples_per_s)


def each_s(accelerators: int, samples_per_s: float) -> float:
    """Time that each accelerator takes for a sample of its own."""
    return accelerators / samples_per_s


def share_of(hosts: int) -> float:
    """(H - 1)/H."""
    return (hosts - 1) / hosts


def waiting_s(host: Host, count: int) -> float:
    """By how much longer each sample takes, because the slowest of so many is slower than that of one host."""
    first = slowest_of(host.accelerators)
    if not first or not host.others_wait_frac:
        return 0.0
    alone = each_s(host.accelerators, host.samples_per_s)
    return host.others_wait_frac * alone * (slowest_of(count) / first - 1)


def doublings(per_host: int, most: int) -> list[int]:
    """1, 2, 4 … up to one host, then whole hosts up to ``most``."""
    inside = [count for count in (2**power for power in range(per_host.bit_length())) if count < per_host]
    hosts = [2**power for power in range(most.bit_length())]
    return [*inside, *(per_host * count for count in hosts if per_host * count <= max(most, per_host))]
