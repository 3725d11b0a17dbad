"""What several ranks, or several hosts, that are measured at the same time deliver, in sentences. Pure."""

from __future__ import annotations

from pipetune.records.shares import slowest_host
from pipetune.records.sweep import Measurement, slowest_of
from pipetune.units import format_rate, format_share

#: Ranks whose rates differ by less than this share are as fast, and shorter waits are not mentioned.
_RANKS_APART = 0.005
#: Hosts that read less than this (bytes/s) have their files in memory.
_READING = 1e6


def hosts_text(m: Measurement) -> str:
    """What all hosts together deliver, and how far they are apart."""
    rates = [share.samples_per_s for share in m.hosts]
    slowest, fastest = slowest_host(m.hosts), max(m.hosts, key=lambda share: share.samples_per_s)
    text = f"{len(m.hosts)} hosts at the same time deliver {format_rate(sum(rates), ' samples/s')} together"
    if max(rates) / min(rates) - 1 < _RANKS_APART:
        text += f", each {format_rate(slowest.samples_per_s, ' samples/s')}"
    else:
        text += f"; the slowest, {slowest.name}, {format_rate(slowest.samples_per_s, ' samples/s')}"
        if fastest is not slowest:
            text += f", {fastest.name} {format_share(fastest.samples_per_s / slowest.samples_per_s - 1)} more"
    read = [share.read_bytes_per_s for share in m.hosts if share.read_bytes_per_s is not None]
    if len(read) == len(m.hosts) and sum(read) >= _READING:
        text += f"; together they read {sum(read) / 1e6:,.0f} MB/s from storage"
    return text + "."


def ranks_text(m: Measurement) -> str:
    """How far the ranks are apart, and how long they wait for each other."""
    slowest = slowest_of(m)
    assert slowest is not None  # there are ranks
    apart = max(share.samples_per_s for share in m.ranks) / slowest.samples_per_s - 1
    rate = format_rate(slowest.samples_per_s, " samples/s")
    text = f"Of {len(m.ranks)} ranks the slowest, rank {slowest.rank}, has {rate}"
    text += f", the fastest {format_share(apart)} more" if apart >= _RANKS_APART else ", and the others as much"
    if m.others_wait_frac is not None and m.others_wait_frac >= _RANKS_APART:
        text += f"; accelerators wait for other ranks {format_share(m.others_wait_frac)} of the time"
    return text + "."
