"""How far are the rates of ``pipetune scale`` from what more accelerators really do?

Promise: rates on 2 to 8 times as many accelerators as were measured are predicted within 5 % in the median.

In two parts, each beside "as before": the rate of one accelerator stays what it was with the most that were measured.

1. **One host.** Sweeps with 1, 2 and 4 ranks against emulated accelerators, which only sleep, so that many fit on few
   cores; predictions for 8, 16 and 32 ranks, which are then measured with the same loader. Slow accelerators stay fed,
   faster ones exhaust the cores sooner or later.
2. **Many hosts.** A published table (``tests/published.py``): fitted to 1 to 32 GPUs, predictions for 64, 128 and 256.
   Their intervals were set from this table, so that it proves nothing about them.

The promise holds where in each part the median error is at most 5 %, and 90 % are within 10 %.
``--quick`` measures one kind of accelerator, once.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune.accelerator.named import emulated_spec
from pipetune.records.sweep import Candidate
from tests.published import COUNTS, RATES, write_table

MEDIAN, WITHIN, SHARE = 0.05, 0.10, 0.9
#: Ranks that sweeps measure, and those that are predicted from them.
KNOWN, ASKED = (1, 2, 4), (8, 16, 32)
#: Emulated accelerators (samples/s each).
DEVICES, QUICK_DEVICES = (8, 25, 50, 100), (25,)
DATASET, BATCH, SECONDS = "synthetic:caltech256?n=800", 16, 4.0
REPEATS = 2
#: GPUs of the published table that are known.
PUBLISHED_KNOWN = 32


def main(options: Namespace) -> bench.Result:
    devices, repeats = (QUICK_DEVICES, 1) if options.quick else (DEVICES, REPEATS)
    with tempfile.TemporaryDirectory(prefix="pipetune-scale-") as scratch:
        parts = {
            "one_host": judged("one host", one_host(Path(scratch), devices, repeats)),
            "many_hosts": judged("many hosts, published", many_hosts(Path(scratch))),
        }
    return bench.Result(all(part["holds"] for part in parts.values()), parts)


def one_host(folder: Path, devices: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Predicted and measured rates with many ranks."""
    import pipetune
    from pipetune.measure.harness import measure

    found = []
    base = bench.loader_setting(folder, DATASET, seconds=SECONDS)
    for device in devices:
        runs = [pipetune.sweep(
            DATASET, device=f"emulated:{device}", ranks=ranks, backends="opencv", workers="1", prefetch="2",
            batch_size=BATCH, seconds=SECONDS, progress=False, blocks=1, out=folder / f"{device}-{ranks}",
        ) for ranks in KNOWN]  # fmt: skip
        key = next(o.candidate.key for o in runs[-1].outcomes if o.candidate.backend == "opencv" and o.measurement
                   and o.candidate.num_workers == 1)  # fmt: skip
        scaled = pipetune.scale(*runs, candidate=key, to=ASKED, per_host=max(ASKED))
        rows = {row.accelerators: row for row in scaled.rows}
        candidate = Candidate(backend="opencv", num_workers=1, prefetch_depth=2, batch_size=BATCH)
        for ranks in ASKED:
            conditions = replace(base, workload=replace(
                base.workload, ranks=ranks, accelerator=emulated_spec(f"{device}")
            ))  # fmt: skip
            rates = []
            for _ in range(repeats):
                outcome, _ = measure(candidate, "candidate", conditions)
                if outcome.measurement is None:
                    raise SystemExit(f"{ranks} ranks failed: {outcome.failure}")
                rates.append(outcome.measurement.samples_per_s)
            found.append(case(f"{ranks} x {device}/s", rows[ranks].samples_per_s, rows[ranks].interval, fmean(rates),
                              rows[KNOWN[-1]].samples_per_s * ranks / KNOWN[-1]))  # fmt: skip
    return found


def many_hosts(folder: Path) -> list[dict[str, Any]]:
    """The same of the published table."""
    import pipetune

    found = []
    for model, rates in RATES.items():
        scaled = pipetune.scale(table=write_table(folder / f"{model}.csv", model, PUBLISHED_KNOWN))
        rows = {row.accelerators: row for row in scaled.rows}
        last = dict(zip(COUNTS, rates, strict=True))[PUBLISHED_KNOWN]
        for count, rate in zip(COUNTS, rates, strict=True):
            if count > PUBLISHED_KNOWN:
                row = rows[count]
                found.append(case(f"{model}, {count}", row.samples_per_s, row.interval, rate,
                                  last * count / PUBLISHED_KNOWN))  # fmt: skip
    return found


def case(
    name: str, predicted: float, interval: tuple[float, float] | None, rate: float, as_before: float
) -> dict[str, Any]:
    """One prediction beside what it came to."""
    return {
        "name": name, "predicted": predicted, "measured": rate, "as_before": as_before,
        "error": predicted / rate - 1, "error_as_before": as_before / rate - 1,
        "inside": interval is not None and interval[0] <= rate <= interval[1],
    }  # fmt: skip


def judged(title: str, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """A part's table, its errors, and whether they are small enough."""
    rows = [[one["name"], f"{one['predicted']:,.0f}", f"{one['measured']:,.0f}", f"{100 * one['error']:+.1f} %",
             bench.yes(one["inside"]), f"{100 * one['error_as_before']:+.1f} %"] for one in cases]  # fmt: skip
    print(bench.table([title, "predicted", "measured", "error", "in its interval", "as before"], rows))
    errors = sorted(abs(one["error"]) for one in cases)
    middle = median(errors)
    within = sum(error <= WITHIN for error in errors) / len(errors)
    before = sorted(abs(one["error_as_before"]) for one in cases)
    print(f"{title}: {100 * middle:.1f} % in the median, {100 * within:.0f} % within {100 * WITHIN:.0f} %; as before: "
          f"{100 * median(before):.1f} %, {100 * sum(e <= WITHIN for e in before) / len(before):.0f} %")  # fmt: skip
    return {
        "holds": middle <= MEDIAN and within >= SHARE, "median": middle, "within": within,
        "median_as_before": median(before), "cases": cases,
    }  # fmt: skip


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
