"""Joins what several ranks sent, which were measured at the same time, into one :class:`Measurement`. Pure.

The timed phase is the time in which all of them were timed. Their steps are put in one row, in the order in which they
ended: that row's rate is the host's, and its scatter that of all ranks together, whether they end their steps in common
or not. Each duration in it counts by the rank's part, so that shares of the time are means over the ranks. Whether the
host is fast enough is decided by its slowest rank.

Why not the sum of intervals, one for each rank: ranks that share cores are slow at the same time, so their rates are
not independent.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from pipetune.measure.gpu_figures import gpu_figures, utilisation_pct
from pipetune.measure.recording import Recording
from pipetune.measure.summary import TooShort, clock_warnings, read_set_up, summarise
from pipetune.records.observation import Reading
from pipetune.records.set_up import slowest_stages
from pipetune.records.sweep import Measurement, RankShare, StepTime, slowest_of


def summarise_ranks(
    recording: Recording, *, accelerator_kind: str, ceiling: Measurement | None, run_noise: float,
    device_noise: float | None = None,
) -> Measurement:  # fmt: skip
    """The measurement of all ranks; arguments and errors are those of :func:`pipetune.measure.summary.summarise`."""
    known = {"accelerator_kind": accelerator_kind, "run_noise": run_noise, "device_noise": device_noise}
    ranks = recording.of_all_ranks
    if len(ranks) == 1:
        return summarise(recording, ceiling=ceiling, **known)  # type: ignore[arg-type]
    span_ns = began_ns, ended_ns = common_time(ranks)
    timed = [[step for step in one.timed if began_ns < step.t_end_ns <= ended_ns] for one in ranks]
    if not all(timed):
        raise TooShort("the ranks were not timed at the same time")
    shares = tuple(
        _share(rank, one, timed[rank], span_ns, _alone_of(ceiling, rank), accelerator_kind)
        for rank, one in enumerate(ranks)
    )
    together = summarise(_as_one(ranks, timed, began_ns), ceiling=ceiling, of_all=False, **known)  # type: ignore[arg-type]
    stages = [stages for one in ranks if (stages := read_set_up(one)) is not None]
    found = replace(
        together, set_up=slowest_stages(stages), ranks=shares,
        others_wait_frac=fmean(share.others_wait_frac for share in shares),
        **_of_accelerators(together, shares, ranks, span_ns),
    )  # fmt: skip
    slowest = slowest_of(found)
    assert slowest is not None
    one = ranks[slowest.rank]
    before = [step for step in (*one.warmup, *one.timed) if step.t_end_ns <= began_ns]
    windows_end_ns = began_ns + round(1e9 * found.timed_s)
    found = replace(
        found, warmup_batches=len(before), steps=sum(step.t_end_ns <= windows_end_ns for step in timed[slowest.rank]),
        warnings=(*found.warnings, *clock_warnings(found.gpu_clock_mhz, found.gpu_slowed_pct, ceiling)),
    )  # fmt: skip
    if slowest.goodput is None:
        return found
    own = replace(one, warmup=before[-1:], timed=timed[slowest.rank], readings=[], other_ranks={},
                  result={**one.result, "window_batches": _least_window(ranks)})  # fmt: skip
    alone = _alone_of(ceiling, slowest.rank)
    interval = summarise(own, ceiling=alone, **known).goodput_ci95  # type: ignore[arg-type]
    return replace(found, goodput=slowest.goodput, goodput_ci95=interval)


def _alone_of(ceiling: Measurement | None, rank: int) -> Measurement | None:
    """One rank's part of the ceiling, as sure as that of all together; ``None``: it is the ceiling that is measured."""
    if ceiling is None:
        return None
    own = next((share.samples_per_s for share in ceiling.ranks if share.rank == rank), ceiling.samples_per_s)
    part = own / ceiling.samples_per_s
    return replace(ceiling, samples_per_s=own, ci95=(ceiling.ci95[0] * part, ceiling.ci95[1] * part))


def _least_window(ranks: Sequence[Recording]) -> int:
    """Steps of each rank in a window: as many as are enough for all."""
    return int(min(one.result["window_batches"] for one in ranks))


def common_time(ranks: Sequence[Recording]) -> tuple[int, int]:
    """From when to when all ranks were timed (monotonic ns)."""
    began_ns = max(one.warmup[-1].t_end_ns if one.warmup else 0 for one in ranks)
    ended_ns = min(one.timed[-1].t_end_ns if one.timed else 0 for one in ranks)
    return began_ns, ended_ns


def _as_one(ranks: Sequence[Recording], timed: Sequence[Sequence[StepTime]], began_ns: int) -> Recording:
    """One recording with the steps of all, which :func:`summarise` reads as those of one rank."""
    count, first = len(ranks), ranks[0]
    steps = sorted((_part(step, count) for steps in timed for step in steps), key=lambda step: step.t_end_ns)
    warmup = [replace(first.warmup[-1], t_end_ns=began_ns)] if first.warmup else []
    sizes = [one.result["pss_bytes"] for one in ranks]
    device_sizes = [one.result["gpu_mem_bytes"] for one in ranks]
    result = {
        **first.result,
        "window_batches": count * _least_window(ranks),
        "steady": all(one.result["steady"] for one in ranks),
        "ended_early": any(one.result.get("ended_early", False) for one in ranks),
        "pss_bytes": None if None in sizes else sum(sizes),
        "gpu_mem_bytes": max((size for size in device_sizes if size is not None), default=None),
    }
    first_batch = {
        name: max(one.first_batch[name] for one in ranks) for name in ("open_s", "time_to_first_batch_s")
    }  # fmt: skip
    return replace(first, warmup=warmup, timed=steps, result=result, first_batch=first_batch, other_ranks={})


def _part(step: StepTime, count: int) -> StepTime:
    """A rank's step in the row of all, in which every rank is a part of the time."""
    return replace(
        step, data_wait_s=step.data_wait_s / count, h2d_s=None if step.h2d_s is None else step.h2d_s / count,
        compute_s=step.compute_s / count, idle_s=step.idle_s / count, others_s=step.others_s / count,
    )  # fmt: skip


def _share(
    rank: int, one: Recording, timed: Sequence[StepTime], span_ns: tuple[int, int], alone: Measurement | None,
    accelerator_kind: str,
) -> RankShare:  # fmt: skip
    seconds = (span_ns[1] - span_ns[0]) / 1e9
    # The common time begins and ends within steps of this rank, which count by the part that lies in it.
    rate = (_samples_by(one, span_ns[1]) - _samples_by(one, span_ns[0])) / seconds
    idle_frac = min(1.0, sum(step.idle_s for step in timed) / seconds)
    return RankShare(
        rank=rank, samples_per_s=rate, goodput=None if alone is None else rate / alone.samples_per_s,
        data_wait_frac=min(1.0, sum(step.data_wait_s for step in timed) / seconds), accelerator_idle_frac=idle_frac,
        others_wait_frac=min(1.0, sum(step.others_s for step in timed) / seconds),
        gpu_util_pct=utilisation_pct(accelerator_kind, one, span_ns, idle_frac),
    )  # fmt: skip


def _samples_by(one: Recording, t_ns: int) -> float:
    """Samples that a rank had computed by then, those of the step that it was in by the part of its time."""
    done, before_ns = 0.0, None
    for step in (*one.warmup, *one.timed):
        if step.t_end_ns > t_ns:
            began_ns = step.t_start_ns if before_ns is None else before_ns
            return done + step.samples * max(0, t_ns - began_ns) / max(1, step.t_end_ns - began_ns)
        done, before_ns = done + step.samples, step.t_end_ns
    return done


def _of_accelerators(
    m: Measurement, shares: Sequence[RankShare], ranks: Sequence[Recording], span_ns: tuple[int, int]
) -> dict[str, Any]:
    """What the accelerators of all ranks showed.

    That is the mean utilisation and power, the most memory, the slowest clock, and the sum of energy and traffic. A sum
    needs the GPUs of all ranks, and counts one that several ranks share once.
    """
    found: dict[str, Any] = {}
    known = [share.gpu_util_pct for share in shares if share.gpu_util_pct is not None]
    if known and m.gpu_util_pct:
        found["gpu_util_pct"] = fmean(known)
        factor = found["gpu_util_pct"] / m.gpu_util_pct
        if m.gpu_util_ci95 is not None:
            found["gpu_util_ci95"] = tuple(min(100.0, factor * end) for end in m.gpu_util_ci95)
    figures = [gpu_figures(one, span_ns, m.samples_per_s, m.ci95) for one in ranks]
    for name, of_all in (
        ("gpu_mem_bytes", max), ("gpu_clock_mhz", min), ("gpu_power_w", fmean), ("gpu_slowed_pct", max),
        ("gpu_power_capped_pct", max), ("sm_active_pct", fmean), ("jpeg_util_pct", fmean),
    ):  # fmt: skip
        values = [figure[name] for figure in figures if figure[name] is not None]
        if values:
            found[name] = of_all(values)
    by_gpu = {
        one.hello.get("gpu_uuid") or number: figure
        for number, (one, figure) in enumerate(zip(ranks, figures, strict=True))
    }
    gpus = list(by_gpu.values())
    for name in ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "energy_j_per_1000_samples"):
        values = [gpu[name] for gpu in gpus]
        found[name] = None if None in values else sum(values)
    ends = [gpu["energy_ci95"] for gpu in gpus]
    found["energy_ci95"] = None if None in ends else tuple(map(sum, zip(*ends, strict=True)))
    return found


def readings_of(recording: Recording, rank: int) -> list[Reading]:
    """The host's readings with the GPU of one rank in them, as that was read last before."""
    own = [reading for reading in recording.of_rank(rank).readings if reading.gpu is not None]
    if rank == 0 or not own:
        return recording.readings
    times = [reading.t_ns for reading in own]
    return [
        replace(reading, gpu=own[max(0, bisect.bisect_right(times, reading.t_ns) - 1)].gpu)
        for reading in recording.readings
    ]
