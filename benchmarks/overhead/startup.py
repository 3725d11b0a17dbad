"""How long does `pipetune --help` take?

Promise: `pipetune --help` answers in under 0.25 s and imports no torch.

Each command is a process of its own. `python -c pass` is timed in alternation with it; the ratio of the two is what to
compare between machines, with the 5th and 95th percentile of single rounds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

PLAIN, HELP = "python -c pass", "pipetune --help"
COMMANDS = {
    PLAIN: [sys.executable, "-c", "pass"],
    HELP: [sys.executable, "-m", "pipetune", "--help"],
    "pipetune sweep --help": [sys.executable, "-m", "pipetune", "sweep", "--help"],
    "pipetune --version": [sys.executable, "-m", "pipetune", "--version"],
}
LIMIT_S = 0.25
_IMPORTS_TORCH = """
import runpy, sys
sys.argv = ["pipetune", "--help"]
try:
    runpy.run_module("pipetune", run_name="__main__")
except SystemExit:
    pass
print("true" if "torch" in sys.modules else "false")
"""


def main(options: Namespace) -> bench.Result:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range((10 if options.quick else 40) + 1):
        for name, command in COMMANDS.items():
            once = seconds(command)
            if turn:  # the first round fills the page cache
                times[name].append(once)
    rows, numbers = [], {}
    for name, taken in times.items():
        ratios = [t / p for t, p in zip(taken, times[PLAIN], strict=True)]
        low, *_, high = quantiles(ratios, n=20)
        rows.append([name, f"{1e3 * median(taken):.0f} ms", f"{median(ratios):.1f}", f"{low:.1f} to {high:.1f}"])
        numbers[name] = {"median_s": median(taken), "ratio_to_plain_python": median(ratios), "p5_p95": [low, high]}
    print(bench.table(["command", "median", "ratio", "5 to 95 %"], rows))
    imports_torch = bench.last_line_of([sys.executable, "-c", _IMPORTS_TORCH])
    print(f"torch imported: {'YES' if imports_torch else 'no'}")
    holds = median(times[HELP]) < LIMIT_S and not imports_torch
    return bench.Result(holds, {"commands": numbers, "imports_torch": imports_torch})


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, env=bench.environment(), check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
