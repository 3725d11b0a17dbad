"""What a script's loader loses where its workers start anew with each epoch. Pure."""

from __future__ import annotations

from dataclasses import replace

from pipetune.records.script import ScriptLoader
from pipetune.records.sweep import Candidate, Measurement


def with_epoch_start(m: Measurement, loader: ScriptLoader, candidate: Candidate) -> Measurement:
    """The rate over whole epochs: each begins with a wait for the first batch of new workers.

    The steady rate alone would favour many workers where epochs are short: of 512 images per rank in one second, two
    workers that start in 0.1 s are no faster than none.
    """
    samples = loader.samples_between_starts(candidate.num_workers)
    # Iterable data sets begin their epochs within the timed phase.
    if samples is None or loader.iterable or m.time_to_first_batch_s <= 0:
        return m
    factor = 1 / (1 + m.time_to_first_batch_s * m.samples_per_s / samples)

    def scaled(interval: tuple[float, float] | None) -> tuple[float, float] | None:
        return None if interval is None else (factor * interval[0], factor * interval[1])

    return replace(
        m, samples_per_s=factor * m.samples_per_s, ci95=(factor * m.ci95[0], factor * m.ci95[1]),
        goodput=None if m.goodput is None else factor * m.goodput, goodput_ci95=scaled(m.goodput_ci95),
        data_wait_frac=1 - factor * (1 - m.data_wait_frac), steady_samples_per_s=m.samples_per_s,
        accelerator_idle_frac=1 - factor * (1 - m.accelerator_idle_frac),
    )  # fmt: skip
