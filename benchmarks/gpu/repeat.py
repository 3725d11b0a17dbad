"""Stage ``repeat``: one candidate and the ceiling, measured again and again.

Does the 95 % interval of a measurement cover the next one? How large is the device's own noise between runs, which
:mod:`pipetune.stats.noise` assumes? What does the sampler cost beside a real driver?
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.workloads import (
    accelerator_of_device,
    batch_size,
    dataset_uri,
    default_candidate,
    fastest_cpu_backend,
    make_conditions,
    make_workload,
    open_images,
    usable_cores,
)
from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure.fork_servers import ForkServers
from pipetune.measure.harness import measure

_REPEATS, _SECONDS = 3, 1.5
#: What is measured; the one of more worth first, because time may be short.
ROLES = ("candidate", "ceiling")
#: A measurement that takes longer than what is left of the stage, which is at least this (s), is given up.
_MIN_S, _HUNG = 2.0, "hung"


def run_stage(findings: Findings) -> None:
    """Measure the two in turn, so that a drift of the machine is in both; as a sweep does, in forks of one server."""
    images = open_images(dataset_uri(findings.is_cuda, 2000))
    candidate = default_candidate(fastest_cpu_backend(), min(8, usable_cores()), batch_size(findings.is_cuda))
    longest_s = 0.0
    with TemporaryDirectory() as folder, ForkServers() as servers, HeldGpus() as gpus:
        spec = accelerator_of_device(findings.device, findings.index)
        conditions = make_conditions(images, make_workload(images, Path(folder), spec, _SECONDS))
        conditions = replace(conditions, servers=servers, gpus=gpus)
        for number, role in itertools.product(range(_REPEATS), ROLES):
            if findings.remaining_s < longest_s:
                findings.report_unproven(f"repetition {number + 1} of the {role}", "there was no time left")
                continue
            before_s = findings.remaining_s
            outcome, _ = measure(candidate, role, replace(conditions, timeout_s=max(_MIN_S, before_s)))
            longest_s = max(longest_s, before_s - findings.remaining_s)
            measured = outcome.measurement
            if measured is None:
                assert outcome.failure is not None
                text = f"{outcome.failure.kind}: {outcome.failure.message}"
                if outcome.failure.kind == _HUNG:
                    findings.report_unproven(f"repetition {number + 1} of the {role}", text)
                else:
                    findings.report_problem(f"{role}: {text}")
                continue
            row = {
                "key": candidate.key,
                "samples_per_s": measured.samples_per_s,
                "ci95": measured.ci95,
                "wall_s": outcome.wall_s,
                "sampler_core_frac": measured.sampler_core_frac,
                "sampler_readings": measured.sampler_readings,
                "gpu_util_pct": measured.gpu_util_pct,
                "gpu_clock_mhz": measured.gpu_clock_mhz,
                "warnings": measured.warnings,
            }
            findings.append(role, row)
            findings.say(
                f"{role}: {measured.samples_per_s:.0f}/s ({measured.ci95[0]:.0f} to {measured.ci95[1]:.0f}), "
                f"{outcome.wall_s:.1f} s, sampler {measured.sampler_core_frac:.2%} of a core"
            )
    for role in ROLES:
        rows = findings.numbers.get(role, [])
        if len(rows) > 1:
            findings.keep(f"{role}_noise", noise := describe_noise(rows))
            findings.say(
                f"{role}: {noise['relative_stdev']:.2%} between {noise['runs']} runs; intervals cover "
                f"{noise['covered']} of {noise['pairs']} other runs"
            )


def describe_noise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Scatter between runs, and how often a run's interval has another run's rate in it.

    An interval of 95 % around one of two independent measurements covers the other one in 83 % of all pairs, since the
    difference has twice the variance: ``2 Phi(1.96 / sqrt(2)) - 1``.
    """
    rates = [row["samples_per_s"] for row in rows]
    pairs = [(row["ci95"], other["samples_per_s"]) for row, other in itertools.permutations(rows, 2)]
    return {
        "runs": len(rows),
        "median_per_s": median(rates),
        "relative_stdev": stdev(rates) / fmean(rates),
        "pairs": len(pairs),
        "covered": sum(low <= rate <= high for (low, high), rate in pairs),
    }
