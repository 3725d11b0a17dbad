"""Is the gain that a sweep states the one that a script has by its own clock?

Promise: the gain that is stated for an edit holds in training, within its interval.

Scripts whose loader is too slow are swept. Then each trains as it is and with ``pipetune run --tuned``, in turn, and
prints its own rates. The promise holds where the ratio of at least 90 % of 30 such pairs lies within the interval that
was stated, and every script has an edit.

``--quick`` (two scripts, three pairs each) takes about 4 minutes, all six with five pairs about 20.
"""

from __future__ import annotations

import random
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.scripts.generated import Script, rate_of, sweep

SCRIPTS = (
    Script(
        name="waits on sleep, one worker",
        sample="time.sleep(0.003)",
        step="time.sleep(0.012)",
        arguments="num_workers=1, persistent_workers=True",
    ),
    Script(name="waits on sleep, no workers", sample="time.sleep(0.002)", step="time.sleep(0.03)"),
    Script(
        name="a gain of a third",
        sample="time.sleep(0.003)",
        step="time.sleep(0.034)",
        arguments="num_workers=1, persistent_workers=True",
    ),
    Script(
        name="iterable, divided",
        dataset="Divided",
        sample="time.sleep(0.003)",
        step="time.sleep(0.02)",
        arguments="num_workers=1",
    ),
    Script(
        name="short epochs",
        sample="time.sleep(0.003)",
        step="time.sleep(0.015)",
        samples=320,
        arguments="num_workers=1",
    ),
    Script(
        name="two ranks",
        sample="time.sleep(0.003)",
        step="time.sleep(0.02)",
        ranks=2,
        arguments="num_workers=1, persistent_workers=True",
    ),
)
QUICK = ("a gain of a third", "short epochs")
PAIRS, QUICK_PAIRS, EPOCHS = 5, 3, 4
LEAST_INSIDE = 0.9


def main(options: Namespace) -> bench.Result:
    scripts = [one for one in SCRIPTS if not options.quick or one.name in QUICK]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="pipetune-stated-gain-") as scratch:
        for number, script in enumerate(scripts):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            pairs = QUICK_PAIRS if options.quick else PAIRS
            found[script.name] = measure(script, folder, Path(scratch) / f"run{number}", pairs)
            print(f"{script.name}: {found[script.name]}", flush=True)
    rows = []
    for name, one in found.items():
        low, high = one["interval"]
        ratios = bench.ratio_text(one["gains"]) if one["gains"] else "-"
        rows.append([name, f"{one['seconds']:.0f} s", f"{one['stated']:.2f}", f"{low:.2f} to {high:.2f}", ratios])
    print(bench.table(["script", "sweep", "stated", "its interval", "really"], rows))
    inside = [
        low <= gain <= high for one in found.values() for low, high in (one["interval"],) for gain in one["gains"]
    ]
    broken = [f"{name}: {one['wrong']}" for name, one in found.items() if one["wrong"]]
    if not inside or sum(inside) < LEAST_INSIDE * len(inside):
        broken.append(f"{sum(inside)} of {len(inside)} pairs are within the stated interval")
    print(f"{sum(inside)} of {len(inside)} pairs are within the stated interval")
    for text in broken:
        print(f"does not hold: {text}")
    return bench.Result(
        not broken,
        {
            "scripts": found,
            "inside": sum(inside),
            "pairs": len(inside),
            "broken": broken,
        },
    )


def measure(script: Script, folder: Path, out: Path, pairs: int) -> dict[str, Any]:
    """Sweep a script, then train as it is and tuned in turn."""
    command = script.write(folder)
    result, seconds, error = sweep(command, folder, out)
    found: dict[str, Any] = {"seconds": seconds, "stated": 1.0, "interval": (1.0, 1.0), "gains": [], "wrong": error}
    if not result.get("recommended"):
        return found | {"wrong": error or "the sweep has no result"}
    if result["recommended"]["role"] == "baseline":
        return found | {"wrong": f"no edit was recommended: {result.get('edit')}"}
    found |= {
        "stated": result["speedup"],
        "interval": tuple(result["speedup_ci95"]),
        "key": result["recommended"]["key"],
    }
    tuned = [sys.executable, "-m", "pipetune", "run", "--tuned", str(out), "--", *command]
    for _ in range(pairs):
        rates = {}
        for way in random.sample(["own", "tuned"], 2):
            rates[way] = rate_of(command if way == "own" else tuned, folder, EPOCHS)
        found["gains"].append(rates["tuned"] / rates["own"])
    return found


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
