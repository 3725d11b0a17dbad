"""Is a script left as it is where no setting of its loader helps, or where each one harms?

Promise: no edit is recommended for a script in which nothing helps, or in which edits harm.

Twenty generated scripts in which no other worker count or prefetch depth gains anything or saves a core or a tenth of
the memory: their step is the limit, or what loading waits for is shared by all workers, or they have as many workers as
help. In five more every other setting is slower. The promise holds where the sweep of each comes to its end and its
result has the script as it is for its recommendation, with no line that says what to set.

``--quick`` sweeps six of them in about 5 minutes; all of them take about 20.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.scripts.generated import Script, sweep

_LOCKED = (
    "f = open(os.path.join(tempfile.gettempdir(), 'one_at_a_time'), 'a'); fcntl.flock(f, fcntl.LOCK_EX); "
    "time.sleep(0.003); f.close()"
)
_COMPUTE = "[torch.mm(torch.ones(256, 256), torch.ones(256, 256)) for _ in range(40)]"

#: No other setting helps.
NOTHING_HELPS = (
    Script(name="in memory, step of 20 ms", step="time.sleep(0.02)"),
    Script(name="in memory, step of 60 ms", step="time.sleep(0.06)", samples=320),
    Script(name="in memory, one worker", step="time.sleep(0.02)", arguments="num_workers=1"),
    Script(
        name="in memory, workers that stay", step="time.sleep(0.02)", arguments="num_workers=1, persistent_workers=True"
    ),
    Script(name="computes on all cores", step=_COMPUTE, threads=2),
    Script(name="computes on one core", step=_COMPUTE),
    Script(name="two ranks on two cores", step=_COMPUTE, ranks=2),
    Script(name="two ranks, step of 30 ms", step="time.sleep(0.03)", ranks=2),
    Script(
        name="waits on sleep, two workers suffice",
        sample="time.sleep(0.004)",
        step="time.sleep(0.045)",
        arguments="num_workers=2, persistent_workers=True",
    ),
    Script(
        name="waits on sleep, one worker suffices",
        sample="time.sleep(0.002)",
        step="time.sleep(0.045)",
        arguments="num_workers=1, persistent_workers=True",
    ),
    Script(name="waits for one lock, one worker", sample=_LOCKED, arguments="num_workers=1, persistent_workers=True"),
    Script(name="iterable, step of 25 ms", dataset="Divided", step="time.sleep(0.025)"),
    Script(
        name="iterable, one worker suffices",
        dataset="Divided",
        sample="time.sleep(0.001)",
        step="time.sleep(0.03)",
        arguments="num_workers=1",
    ),
    Script(name="noisy step", step="time.sleep(random.expovariate(1 / 0.02))"),
    Script(name="noisy step, one worker", step="time.sleep(random.expovariate(1 / 0.02))", arguments="num_workers=1"),
    Script(
        name="noisy samples that suffice",
        sample="time.sleep(random.expovariate(1 / 0.001))",
        step="time.sleep(0.05)",
        arguments="num_workers=1, persistent_workers=True",
    ),
    Script(name="pauses as if it saved", step="time.sleep(0.2 if number % 20 == 19 else 0.015)"),
    Script(name="short epochs", step="time.sleep(0.03)", samples=128),
    Script(
        name="shuffled, last batch dropped",
        step="time.sleep(0.02)",
        arguments="num_workers=0, shuffle=True, drop_last=True",
        samples=650,
    ),
    Script(name="large batches in memory", step="time.sleep(0.08)", size=4096, batch=64, samples=1280),
)
#: Every other setting is slower.
EDITS_HARM = (
    Script(
        name="samples take longer with each worker",
        sample="time.sleep(0.002 * workers_now() ** 2)",
        arguments="num_workers=1, persistent_workers=True",
    ),
    Script(
        name="the same, iterable",
        dataset="Divided",
        sample="time.sleep(0.002 * workers_now() ** 2)",
        arguments="num_workers=1",
    ),
    Script(
        name="two ranks, samples take longer with each worker",
        ranks=2,
        sample="time.sleep(0.002 * workers_now() ** 2)",
        arguments="num_workers=1, persistent_workers=True",
    ),
    Script(
        name="workers that start for long, short epochs",
        start="time.sleep(0.4)",
        arguments="num_workers=0, worker_init_fn=start_worker",
        samples=160,
        step="time.sleep(0.02)",
    ),
    Script(name="two ranks compute on two cores, large samples", step=_COMPUTE, ranks=2, size=16384, samples=320),
)
QUICK = (
    "in memory, step of 20 ms",
    "two ranks on two cores",
    "waits for one lock, one worker",
    "noisy step, one worker",
    "waits on sleep, two workers suffice",
    "samples take longer with each worker",
)


def main(options: Namespace) -> bench.Result:
    scripts = [one for one in (*NOTHING_HELPS, *EDITS_HARM) if not options.quick or one.name in QUICK]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="pipetune-no-gain-") as scratch:
        for number, script in enumerate(scripts):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            result, seconds, error = sweep(script.write(folder), folder, Path(scratch) / f"run{number}")
            found[script.name] = judge(result, seconds, error)
            print(f"{script.name}: {seconds:.0f} s, {found[script.name]['said']}", flush=True)
    headings = ["script", "sweep", "set-up", "recommended", "edit in question", "its gain"]
    print(bench.table(headings, [row(name, one) for name, one in found.items()]))
    broken = [f"{name}: {one['wrong']}" for name, one in found.items() if one["wrong"]]
    for text in broken:
        print(f"does not hold: {text}")
    return bench.Result(not broken, {"scripts": found, "broken": broken})


def judge(result: dict[str, Any], seconds: float, error: str) -> dict[str, Any]:
    """What came of one sweep; ``wrong`` is empty where the script is left as it is."""
    recommended = result.get("recommended")
    if error or recommended is None:
        wrong = f"the sweep has no result: {error or result.get('message')}"
        return {"seconds": seconds, "said": wrong, "wrong": wrong}
    edit = result.get("edit")
    is_edit = recommended["role"] != "baseline"
    said = "left as it is"
    if is_edit and edit is not None:
        low, high = edit["gain_ci95"]
        said = f"{recommended['key']}, {edit['verdict']}: {edit['gain']:.2f} times ({low:.2f} to {high:.2f})"
    elif is_edit:
        said = recommended["key"]
    return {
        "seconds": seconds,
        "setup_s": (result.get("script") or {}).get("setup_s"),
        "recommended": recommended["key"],
        "edit": edit,
        "said": said,
        "wrong": f"an edit is recommended: {said}" if is_edit else "",
    }


def row(name: str, one: dict[str, Any]) -> list[str]:
    """A line of the table."""
    if "recommended" not in one:
        return [name, f"{one['seconds']:.0f} s", *["-"] * 4]
    edit = one["edit"]
    gain = "-" if edit is None else f"{edit['gain']:.2f} ({edit['gain_ci95'][0]:.2f} to {edit['gain_ci95'][1]:.2f})"
    setup = "-" if one["setup_s"] is None else f"{one['setup_s']:.0f} s"
    return [name, f"{one['seconds']:.0f} s", setup, one["recommended"], "-" if edit is None else edit["verdict"], gain]


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
