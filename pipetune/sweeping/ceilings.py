"""The max ingestion rate with several batch sizes, from the outcomes of a sweep. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.records.ceilings import BatchCeiling
from pipetune.records.sweep import Measurement, Outcome
from pipetune.stats.intervals import ratio_interval


def ceilings_by_batch(outcomes: Sequence[Outcome]) -> tuple[BatchCeiling, ...]:
    """The newest ceiling of each batch size, ascending; ``()``: there is one batch size.

    Gains are stated against the newest ceiling with the candidates' batch size before the first with another one: a
    device that gets warm lowers its clocks, so a later ceiling would be no neighbour in time.
    """
    first = next((number for number, outcome in enumerate(outcomes) if outcome.other_batch), None)
    if first is None:
        return ()
    own = next((outcome for outcome in reversed(outcomes[:first]) if outcome.is_ceiling and outcome.measurement), None)
    newest = {outcome.candidate.batch_size: outcome for outcome in outcomes if outcome.other_batch}
    rows = [_row(outcome, None if own is None else own.measurement) for outcome in newest.values()]
    if own is not None:
        rows.append(_row(own, None))
    return tuple(sorted(rows, key=lambda row: row.batch_size))


def _row(outcome: Outcome, own: Measurement | None) -> BatchCeiling:
    m, size = outcome.measurement, outcome.candidate.batch_size
    if m is None:
        why = None if outcome.failure is None else outcome.failure.message
        return BatchCeiling(batch_size=size, samples_per_s=None, ci95=None, failure=why)
    return BatchCeiling(
        batch_size=size,
        samples_per_s=m.samples_per_s,
        ci95=m.ci95,
        gain=None if own is None else m.samples_per_s / own.samples_per_s,
        gain_ci95=None if own is None else ratio_interval(m.samples_per_s, m.ci95, own),
        gpu_mem_bytes=m.gpu_mem_bytes,
    )
