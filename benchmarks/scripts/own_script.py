"""Does a script train as much faster as the sweep of it has stated, and as the best settings set by hand would make it?

Promise: tuning an unmodified training script states the gain that it then has, and changes nothing else of it.

Ten scripts (``tests/scripts``), some with several lengths of steps and epochs, decode real photographs and train for
real, each step with a pause that stands for an accelerator; another one has no loader, which a sweep of it has to say
within seconds. The promise holds where on two cores

1. measured in one running script and in fresh starts of it, candidates have the same rate: ratio 1.00 within 3 % in the
   median, and 90 % of the ratios inside their intervals;
2. the rate that a script itself prints, with ``pipetune run --tuned`` against as it is, in turn, grows by what was
   stated: inside the interval for at least seven of eight scripts; and it reaches 97 % of the best of a grid by hand,
   which is measured again in turn with it: the best of many noisy runs is better than it is. Where the median of three
   turns is below that, there are more; it is missed where the 95 % interval of the median is below 97 %;
3. a sweep takes no more than three times the script's set-up, and 60 s;
4. every sample is trained on once per epoch, an earlier checkpoint in the script's folder is as before and each new
   file is named, no process is left, and exit codes are right;
5. sweeps of scripts that are awkward to measure (``benchmarks/scripts/endings.py``: epochs of two batches, loops that
   rely on ``len(loader)``, a single short epoch, two ranks on two cores, a step of three seconds) end in that time,
   too; where the script suffices as it is, in two set-ups and 30 s;
6. ``pipetune run --tuned`` is as fast as the script with its changes written by hand: 1.00 within 1 % in the median.
   One of the changes is that garbage is collected before the first workers start, which makes both faster than the
   script with other numbers of workers alone; that ratio is printed, too.

Needs lightning, accelerate and transformers for three of the scripts. ``--quick`` (three scripts, one repeat) takes
about 7 minutes and does not judge the last point, for which it runs each script too few times; the full run takes about
50.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import harmonic_mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.scripts.cases import SCRIPTS, Case, make_data, samples_once, train, usable_cases
from benchmarks.scripts.endings import EXTRA_S, SETUPS, misses_of, run_endings

IMAGES, EPOCHS = 1024, 3
REPEATS, MOST_REPEATS = 3, 9
#: Settings that are measured both ways: workers and prefetch depth.
PAIRS = ((1, 2), (2, 2), (2, 4))
GRID = (0, 1, 2, 3)
QUICK = ("classic", "prefetcher", "two ranks, torchrun")
SAME, INSIDE, BEST, COST = 0.03, 0.9, 0.97, 0.01
#: A checkpoint that lies in the folder of each script before the sweep: the classic script writes one of this name.
PRECIOUS, _PRECIOUS = "checkpoint.pth", b"the weights of last week"
_WORKERS = re.compile(r"(\w*)num_workers=args\.workers")
#: Interval of the gain of a script that is left as it is.
UNCHANGED = (1.0, 1.0)
#: Single runs of one script differ by more than the cost that is promised: it is judged by the median of so many.
LEAST_COSTS = 9


@dataclass
class Found:
    """What came of one script."""

    seconds: float = 0.0
    setup_s: float = 0.0
    stated: float = 1.0
    interval: tuple[float, float] = UNCHANGED
    gains: list[float] = field(default_factory=list)
    of_best: list[float] = field(default_factory=list)
    by_hand: list[float] = field(default_factory=list)
    by_workers: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    recommended: str = ""

    @property
    def inside(self) -> bool:
        """The gain is what was stated, within its interval and that of the repeats; a script that is left as it is has
        none."""
        if self.interval == UNCHANGED:
            return True
        low, high = bench.bootstrap_ci95(self.gains) if len(self.gains) > 1 else (self.gains[0], self.gains[0])
        return low <= self.interval[1] and high >= self.interval[0]


def main(options: Namespace) -> bench.Result:
    repeats = 1 if options.quick else REPEATS
    cases = [case for case in usable_cases() if not options.quick or case.name in QUICK]
    pairs: list[dict[str, Any]] = []
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory(prefix="pipetune-scripts-") as scratch:
        folder = Path(scratch)
        data = make_data(folder, IMAGES)
        endings = run_endings(folder)
        for case in cases:
            place = folder / f"cwd-{len(found)}"
            place.mkdir()
            found[case.name] = refuse(case, data, place) if case.refused else tune(case, data, place, repeats)
            if not case.setup_s and not case.refused:
                pairs += both_ways(case, data, place, PAIRS[1:] if options.quick else PAIRS)
            print(f"{case.name}: {summary(found[case.name])}", flush=True)
    headings = ["script", "sweep", "set-up", "stated", "its interval", "really", "of the best by hand", "run / by hand"]
    print(bench.table(headings, [row(name, one) for name, one in found.items()]))
    broken = [*misses_of(endings), *misses(found, pairs)]
    for text in broken:
        print(f"does not hold: {text}")
    return bench.Result(not broken, {
        "scripts": {name: {
            "seconds": one.seconds, "setup_s": one.setup_s, "stated": one.stated, "interval": one.interval,
            "gains": one.gains, "of_best": one.of_best, "by_hand": one.by_hand, "by_workers": one.by_workers,
            "recommended": one.recommended, "wrong": one.wrong,
        } for name, one in found.items()}, "pairs": pairs, "broken": broken,
        "endings": {name: asdict(ended) for name, ended in endings.items()},
    })  # fmt: skip


def refuse(case: Case, data: Path, cwd: Path) -> Found:
    """Sweep a script that cannot be tuned: it is said why within seconds, and the script has written nothing."""
    one = Found()
    done = sweep_script(case, data, cwd, one)
    if done.returncode != 1 or case.refused is None or case.refused not in done.stderr:
        one.wrong.append(f"the sweep ended with {done.returncode}: {done.stderr[-300:]}")
    if one.seconds > EXTRA_S:
        one.wrong.append(f"that took {one.seconds:.0f} s")
    if files_in(cwd) != [PRECIOUS]:
        one.wrong.append(f"the script's folder holds {files_in(cwd)}")
    if left_running(data):
        one.wrong.append(f"left running: {left_running(data)}")
    return one


def sweep_script(case: Case, data: Path, cwd: Path, one: Found) -> subprocess.CompletedProcess[str]:
    """Sweep a script as a user would; the run folder and the JSON lie beside its folder."""
    out = cwd.parent / f"run-{cwd.name}"
    (cwd / PRECIOUS).write_bytes(_PRECIOUS)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pipetune", "sweep", "--progress", "none", "--json", f"{out}.json", "--out", str(out),
         "--", *case.command(data)], cwd=cwd, env=bench.environment(), check=False, capture_output=True, text=True,
    )  # fmt: skip
    one.seconds = time.monotonic() - began
    if (cwd / PRECIOUS).read_bytes() != _PRECIOUS:
        one.wrong.append(f"{PRECIOUS} was overwritten")
    written = out / "written.json"
    named = json.loads(written.read_bytes())["created"] if written.exists() else []
    if unnamed := sorted({str(cwd / name) for name in files_in(cwd)} - {str(cwd / PRECIOUS), *named}):
        one.wrong.append(f"new files are not named: {unnamed}")
    return done


def tune(case: Case, data: Path, cwd: Path, repeats: int) -> Found:
    """Sweep a script, then train with what was found, beside as it is and by hand."""
    one, out = Found(), cwd.parent / f"run-{cwd.name}"
    swept = sweep_script(case, data, cwd, one)
    if swept.returncode:
        one.wrong.append(f"the sweep ended with {swept.returncode}: {swept.stderr[-300:]}")
        one.gains = [0.0]
        return one
    result = json.loads(Path(str(out) + ".json").read_text())
    one.setup_s, one.stated = result["script"]["setup_s"], result["speedup"]
    one.interval, one.recommended = tuple(result["speedup_ci95"]), result["recommended"]["key"]
    if left_running(data):
        one.wrong.append(f"left running: {left_running(data)}")
    candidate = result["recommended"]["candidate"]
    tuned = [sys.executable, "-m", "pipetune", "run", "--tuned", str(out), "--"]
    seen = cwd.parent / f"seen-{cwd.name}"  # noting the samples takes time, so this run is not timed
    rate_of(case, [*tuned, *case.command(data, None, EPOCHS, seen)], cwd, one)
    if not samples_once(seen, case.images or IMAGES, EPOCHS, case.ranks):
        one.wrong.append("samples were lost or doubled")
    grid = {workers: rate_of(case, case.command(data, workers, EPOCHS), cwd, one) for workers in GRID}
    best = max(grid, key=lambda workers: grid[workers])
    rates: dict[str, list[float]] = {}
    changed = case.command(data, candidate["num_workers"], EPOCHS)
    if one.interval != UNCHANGED:  # pipetune run collects garbage where it changes a loader only
        changed = by_hand(case, cwd.parent, changed, kept=candidate["keep_workers"])
    commands = {
        "as it is": case.command(data, None, EPOCHS), "tuned": [*tuned, *case.command(data, None, EPOCHS)],
        "other workers": case.command(data, candidate["num_workers"], EPOCHS),
        "by hand": changed,
        "best": case.command(data, best, EPOCHS),
    }  # fmt: skip
    while len(one.of_best) < repeats or (
        repeats > 1 and median(one.of_best) < BEST and len(one.of_best) < MOST_REPEATS
    ):
        # Turns beyond those of all scripts decide how near the best it is, and nothing else.
        ways = sorted(commands if len(one.of_best) < repeats else ("as it is", "tuned", "best"))
        for way in random.sample(ways, len(ways)):
            rates.setdefault(way, []).append(rate_of(case, commands[way], cwd, one))
        one.of_best.append(rates["tuned"][-1] / rates["best"][-1])
    one.gains = [tuned / own for tuned, own in zip(rates["tuned"], rates["as it is"], strict=True)]
    one.by_hand = [tuned / hand for tuned, hand in zip(rates["tuned"], rates["by hand"], strict=False)]
    one.by_workers = [tuned / hand for tuned, hand in zip(rates["tuned"], rates["other workers"], strict=False)]
    return one


def by_hand(case: Case, folder: Path, command: Sequence[str], *, kept: bool) -> list[str]:
    """The command with a copy of the script that collects garbage before it makes its loaders.

    That is the other change that ``pipetune run`` makes (``pipetune.hook.tuned``). ``kept``: its workers live on from
    epoch to epoch, too.
    """
    own = SCRIPTS / case.file
    before = "    args = parser.parse_args()\n"
    text = own.read_text()
    if before not in text:
        raise ValueError(f"{own} has no line {before.strip()!r}, after which garbage is to be collected")
    text = text.replace(before, before + "    __import__('gc').collect()\n", 1)
    if kept:
        text, lines = _WORKERS.subn(r"\g<0>, \1persistent_workers=args.workers > 0", text, count=1)
        if not lines:
            raise ValueError(f"{own} has no line with num_workers=args.workers, beside which workers are to live on")
    edited = folder / f"by_hand_{case.file}"
    edited.write_text(text)
    return [str(edited) if word == str(own) else word for word in command]


def rate_of(case: Case, command: Sequence[str], cwd: Path, one: Found) -> float:
    """The rate of all epochs but the first, in which the page cache is warm."""
    trained = train(command, cwd)
    if trained.exit_code or len(trained.rates) < EPOCHS:
        one.wrong.append(f"{' '.join(command[:6])} … ended with {trained.exit_code}: {trained.stderr[-300:]}")
        return float("nan")
    return harmonic_mean(trained.rates[1:])


def both_ways(case: Case, data: Path, cwd: Path, settings: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Each setting in one running script and in a fresh start, in random order."""
    from pipetune.measure.script.bench import ScriptBench
    from pipetune.stats.noise import run_noise
    from pipetune.sweeping.options import SweepOptions
    from pipetune.sweeping.script_setup import plan_script, prepare_script

    found: dict[tuple[int, int], dict[str, Any]] = {pair: {} for pair in settings}
    command = tuple(case.command(data))
    with ScriptBench(command, cwd.parent / f"pairs-{cwd.name}.log") as measured:
        chosen = SweepOptions(dataset="script:pairs", command=command)
        prepared = prepare_script(chosen, measured.begin())
        own = prepared.space.untuned
        assert own is not None
        measured.settle_on(own)
        conditions = plan_script(chosen, prepared).conditions
        ways = [(pair, fresh) for pair in settings for fresh in (False, True)]
        for (workers, depth), fresh in random.sample(ways, len(ways)):
            from dataclasses import replace

            candidate = replace(own, num_workers=workers, prefetch_depth=depth)
            outcome, _ = measured.measure(
                candidate, "candidate", replace(conditions, new_process=fresh), run_noise=run_noise((), ())
            )
            m = outcome.measurement
            if m is None:
                print(
                    f"  {case.name}, {workers} workers, {'fresh' if fresh else 'relay'}: {outcome.failure}", flush=True
                )
                continue
            found[(workers, depth)]["fresh" if fresh else "relay"] = (m.samples_per_s, m.ci95)
    rows = []
    for (workers, depth), ways_found in found.items():
        if len(ways_found) == 2:
            (relay, relay_ci), (fresh_rate, fresh_ci) = ways_found["relay"], ways_found["fresh"]
            half = ((relay_ci[1] - relay_ci[0]) ** 2 + (fresh_ci[1] - fresh_ci[0]) ** 2) ** 0.5 / 2
            rows.append({
                "script": case.name, "workers": workers, "prefetch": depth, "relay": relay, "fresh": fresh_rate,
                "ratio": relay / fresh_rate, "inside": abs(relay - fresh_rate) <= half,
            })  # fmt: skip
    return rows


def files_in(folder: Path) -> list[str]:
    """Files below a folder, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def left_running(data: Path) -> list[str]:
    """Command lines of processes that still train on the data."""
    import psutil

    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any("tests/scripts" in word for word in words) and any(str(data.parent) in word for word in words):
            found.append(" ".join(words)[:80])
    return found


def summary(one: Found) -> str:
    """A line while the benchmark runs."""
    if not one.by_hand:
        return "; ".join(one.wrong) or f"{one.seconds:.0f} s, refused as it should be"
    wrong = f"; {'; '.join(one.wrong)}" if one.wrong else ""
    return f"{one.seconds:.0f} s, stated {one.stated:.2f}, really {median(one.gains):.2f}, {one.recommended}{wrong}"


def row(name: str, one: Found) -> list[str]:
    """A line of the table."""
    if not one.by_hand:
        return [name, f"{one.seconds:.0f} s", *["-"] * 6]
    low, high = one.interval
    return [
        name, f"{one.seconds:.0f} s", f"{one.setup_s:.0f} s", f"{one.stated:.2f}", f"{low:.2f} to {high:.2f}",
        bench.ratio_text(one.gains), bench.ratio_text(one.of_best), bench.ratio_text(one.by_hand, 3),
    ]  # fmt: skip


def misses(found: dict[str, Found], pairs: Sequence[dict[str, Any]]) -> list[str]:
    """What of the promise does not hold."""
    broken = [f"{name}: {text}" for name, one in found.items() for text in one.wrong]
    good = {name: one for name, one in found.items() if one.by_hand}
    if pairs:
        middle, inside = median(pair["ratio"] for pair in pairs), [pair["inside"] for pair in pairs]
        print(
            f"one script / fresh starts: {middle:.3f} in the median of {len(pairs)}, "
            f"{sum(inside)} inside their intervals"
        )
        if abs(middle - 1) > SAME:
            broken.append(f"one running script is {middle:.3f} of fresh starts in the median")
        if sum(inside) < INSIDE * len(inside):
            broken.append(f"{sum(inside)} of {len(inside)} pairs are inside their intervals")
    outside = [name for name, one in good.items() if not one.inside]
    if len(outside) > max(1, len(good) // 8):
        broken.append(f"the stated gain does not hold for {', '.join(outside)}")
    for name, one in good.items():
        if max(median(one.of_best), bench.bootstrap_ci95(one.of_best)[1]) < BEST:
            broken.append(f"{name}: {bench.ratio_text(one.of_best)} of the best by hand")
        if one.seconds > SETUPS * one.setup_s + EXTRA_S:
            broken.append(f"{name}: the sweep took {one.seconds:.0f} s with a set-up of {one.setup_s:.0f} s")
    costs = [ratio for one in good.values() for ratio in one.by_hand]
    if costs:
        others = [ratio for one in good.values() for ratio in one.by_workers]
        print(
            f"pipetune run / the same by hand: {bench.ratio_text(costs, 3)}; / the script with other numbers of "
            f"workers alone: {bench.ratio_text(others, 3)}"
        )
    if len(costs) >= LEAST_COSTS and abs(median(costs) - 1) > COST:
        broken.append(f"pipetune run is {median(costs):.3f} of the same changes by hand")
    return broken


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
