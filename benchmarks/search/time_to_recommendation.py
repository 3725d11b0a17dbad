"""How long does it take until pipetune recommends something, and is it as good as what a longer search finds?

Promise: where PyTorch's default suffices, a sweep ends within 20 s; where it does not, within 60 to 90 s.

``pipetune sweep`` is run as a user runs it, on photographs, against emulated accelerators of 200 samples/s (which the
default feeds), 1,200 (which a good loader feeds) and 20,000 (which nothing feeds), beside ``--effort thorough`` and
beside loadtune, which tunes PyTorch's DataLoader for the same accelerator. What each recommends is measured side by
side afterwards, in blocks of random order. The promise holds where on two cores

1. at 200 samples/s the sweep ends within 20 s;
2. at 1,200 within 60 s, and what it recommends reaches 97 % of the accelerator's rate;
3. at 20,000 within 90 s, and what it recommends is within 3 % of what ``--effort thorough`` finds;
4. it takes no longer than loadtune where that tries anything, and at 1,200 and 20,000 reaches at least 1.5 times its
   goodput. loadtune ends after its first measurement, with nothing to recommend, where it finds the CPU saturated: then
   both times are shown and not compared.

Times are the medians of three runs of the whole command (of two with ``--effort thorough``), imports included, and the
table shows the longest one, too. ``--quick`` (one run of each, without ``thorough``) takes about 10 minutes, the full
run about 55.
"""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pipetune
from benchmarks import bench
from benchmarks.search.loadtune_job import FOLDER, RATE
from pipetune.measure.harness import measure
from pipetune.records.sweep import Candidate

#: Rate of the accelerator (samples/s) -> time limit (s).
LIMITS_S = {200: 20.0, 1200: 60.0, 20000: 90.0}
REPEATS, THOROUGH_REPEATS = 3, 2
#: Blocks in which the recommendations are compared, and the length of the timed phase in them (s).
BLOCKS, SECONDS = 4, 4.0
FED, AS_GOOD, BETTER = 0.97, 0.97, 1.5
DATA = "synthetic:imagenet-real?n=588"
NORMAL, THOROUGH, LOADTUNE = "pipetune", "pipetune, thorough", "loadtune"


@dataclass
class Runs:
    """Runs of one tool at one rate."""

    seconds: list[float] = field(default_factory=list)
    measurements: list[int] = field(default_factory=list)
    found: list[Candidate] = field(default_factory=list)


def main(options: Namespace) -> bench.Result:
    repeats = 1 if options.quick else REPEATS
    tools = [NORMAL] if options.quick else [NORMAL, THOROUGH]
    if importlib.util.find_spec("loadtune") is not None:
        tools.append(LOADTUNE)
    else:
        print("loadtune is not installed, left out; pip install loadtune")
    numbers: dict[str, Any] = {}
    rows, broken = [], []
    with tempfile.TemporaryDirectory(prefix="pipetune-recommendation-") as scratch:
        folder = photographs(Path(scratch))
        for rate in LIMITS_S:
            runs = {tool: Runs() for tool in tools}
            for number in range(repeats):
                now = [tool for tool in tools if tool != THOROUGH or number < THOROUGH_REPEATS]
                for tool in random.sample(now, len(now)):
                    run(tool, rate, folder, Path(scratch, f"{rate}-{number}-{tool}"), runs[tool])
                    print(f"{rate}/s, {tool}: {runs[tool].seconds[-1]:.0f} s, {runs[tool].found[-1].key}", flush=True)
            goodputs = side_by_side(rate, runs, Path(scratch, f"blocks-{rate}"))
            rows += [row(rate, tool, runs[tool], goodputs[tool]) for tool in tools]
            broken += misses(rate, runs, goodputs)
            numbers[str(rate)] = {
                tool: {
                    "seconds": runs[tool].seconds, "measurements": runs[tool].measurements,
                    "recommended": [candidate.key for candidate in runs[tool].found], "goodput": goodputs[tool],
                }
                for tool in tools
            }  # fmt: skip
    headings = ["rate", "tool", "time, median", "longest", "measurements", "goodput", "recommended"]
    print(bench.table(headings, rows, left=(0, 1, 6)))
    for text in broken:
        print(f"does not hold: {text}")
    return bench.Result(not broken, {"rates": numbers, "broken": broken})


def photographs(scratch: Path) -> Path:
    """The folder of images, made before the clock runs."""
    from pipetune.datasets.index import read_index

    conditions = bench.loader_setting(scratch, DATA, seconds=1.0, rate=1000)
    return Path(read_index(conditions.workload.index_path).root)


def run(tool: str, rate: int, folder: Path, out: Path, runs: Runs) -> None:
    """Run a tool as its command, and note its time and its recommendation."""
    began = time.monotonic()
    if tool == LOADTUNE:
        found, measured = run_loadtune(rate, folder, out)
    else:
        effort = ["--effort", "thorough"] if tool == THOROUGH else []
        command = [
            sys.executable, "-m", "pipetune", "sweep", "--dataset", str(folder), "--device", f"emulated:{rate}",
            "--out", str(out), *effort,
        ]  # fmt: skip
        subprocess.run(command, env=bench.environment(), check=False, capture_output=True)
        stored = pipetune.load(out)
        found = next(o.candidate for o in reversed(stored.outcomes) if o.candidate.key == stored.recommended_key)
        measured = len(stored.outcomes)
    runs.seconds.append(time.monotonic() - began)
    runs.found.append(found)
    runs.measurements.append(measured)


def run_loadtune(rate: int, folder: Path, out: Path) -> tuple[Candidate, int]:
    """loadtune with its defaults; the DataLoader that it recommends."""
    out.mkdir()
    command = [
        sys.executable, "-m", "loadtune.cli", "tune", str(Path(__file__).with_name("loadtune_job.py")),
        "--out", str(out / "report.md"), "--save-raw", str(out / "raw.json"),
    ]  # fmt: skip
    environment = {**bench.environment(), FOLDER: str(folder), RATE: str(rate)}
    subprocess.run(command, env=environment, check=True, capture_output=True, cwd=out)
    knobs: dict[str, Any] = {"num_workers": 0}
    trials: Sequence[dict[str, Any]] = ()
    if (out / "raw.json").exists():  # it writes none where the default looks fine
        raw = json.loads((out / "raw.json").read_text())
        trials = [trial for trial in raw["trials"] if trial["result"] and not trial["result"].get("error")]
        everything = [(raw["baseline"]["throughput"], knobs)]
        everything += [(trial["result"]["throughput"], trial["knobs"]) for trial in trials]
        knobs = max(everything, key=lambda pair: pair[0])[1]
    workers = knobs["num_workers"]
    candidate = Candidate(
        backend="pillow", num_workers=workers, prefetch_depth=(knobs.get("prefetch_factor") or 2) if workers else 0,
        batch_size=64,
    )  # fmt: skip
    return candidate, 1 + len(trials)


def side_by_side(rate: int, runs: dict[str, Runs], folder: Path) -> dict[str, float]:
    """Goodput of what each tool recommended (its median run), measured in blocks of random order."""
    folder.mkdir()
    conditions = bench.loader_setting(folder, DATA, seconds=SECONDS, rate=rate)
    candidates = {candidate.key: candidate for tool in runs.values() for candidate in tool.found}
    rates: dict[str, list[float]] = {key: [] for key in candidates}
    for _ in range(BLOCKS):
        for key in random.sample(sorted(candidates), len(candidates)):
            m = measure(candidates[key], "candidate", conditions)[0].measurement
            rates[key].append(0.0 if m is None else m.samples_per_s / rate)
    return {
        tool: median(median(rates[candidate.key]) for candidate in found.found) for tool, found in runs.items()
    }  # fmt: skip


def row(rate: int, tool: str, runs: Runs, goodput: float) -> list[str]:
    """A line of the table."""
    return [
        f"{rate:,}/s", tool, f"{median(runs.seconds):.0f} s", f"{max(runs.seconds):.0f} s",
        f"{median(runs.measurements):.0f}", f"{100 * goodput:.1f} %", ", ".join(sorted({c.key for c in runs.found})),
    ]  # fmt: skip


def misses(rate: int, runs: dict[str, Runs], goodputs: dict[str, float]) -> list[str]:
    """What of the promise does not hold at a rate."""
    seconds = {tool: median(found.seconds) for tool, found in runs.items()}
    checks = [(seconds[NORMAL] <= LIMITS_S[rate], f"it takes {seconds[NORMAL]:.0f} s, not {LIMITS_S[rate]:.0f} s")]
    if rate < max(LIMITS_S):
        checks.append((goodputs[NORMAL] >= FED, f"goodput is {100 * goodputs[NORMAL]:.1f} %"))
    if rate == max(LIMITS_S) and THOROUGH in goodputs:
        share = goodputs[NORMAL] / goodputs[THOROUGH]
        checks.append((share >= AS_GOOD, f"it reaches {100 * share:.1f} % of what --effort thorough finds"))
    if LOADTUNE in goodputs:
        if median(runs[LOADTUNE].measurements) > 1:
            slower = seconds[NORMAL] / seconds[LOADTUNE]
            checks.append((slower <= 1.0, f"it takes {slower:.2f} times as long as loadtune"))
        better = goodputs[NORMAL] / goodputs[LOADTUNE]
        if rate > min(LIMITS_S):
            checks.append((better >= BETTER, f"goodput is {better:.2f} times loadtune's"))
    return [f"{rate}/s: {text}" for holds, text in checks if not holds]


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
