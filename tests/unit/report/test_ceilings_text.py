from __future__ import annotations

from pipetune.records.ceilings import BatchCeiling
from pipetune.report.ceilings_text import ceilings_lines, find_faster_batch


def row(batch: int, rate: float | None, gain: float | None = None, **changes: object) -> BatchCeiling:
    return BatchCeiling(
        batch_size=batch,
        samples_per_s=rate,
        ci95=None if rate is None else (0.98 * rate, 1.02 * rate),
        gain=gain,
        gain_ci95=None if gain is None else (gain - 0.03, gain + 0.03),
        **changes,  # type: ignore[arg-type]
    )


def text(*rows: BatchCeiling) -> str:
    return "\n".join(line.text for line in ceilings_lines(rows, 64))


def test_a_gain_beyond_the_intervals_is_advised() -> None:
    said = text(row(64, 1000.0), row(128, 1180.0, 1.18), row(256, 1310.0, 1.31))
    assert "With batches of 256 it can take 1,310 samples/s, 1.31 times as many (1.28 to 1.34)." in said
    assert "Try --batch-size 256 (now 64)" in said
    assert "batches of 64" not in said


def test_the_smallest_of_those_that_are_as_fast_is_advised() -> None:
    rows = (row(64, 1000.0), row(128, 1300.0, 1.3), row(256, 1310.0, 1.31))
    found = find_faster_batch(rows)
    assert found is not None
    assert found.batch_size == 128


def test_without_a_proven_gain_nothing_is_advised() -> None:
    said = text(row(64, 1000.0), row(128, 1020.0, 1.02), row(32, 800.0, 0.8))
    assert "within the measurement error" in said
    assert "0.80 times as many" in said
    assert "Try" not in said


def test_what_was_not_measured_says_why() -> None:
    assert "With batches of 512 it was not measured: CUDA out of memory." in text(
        row(512, None, failure="CUDA out of memory")
    )
