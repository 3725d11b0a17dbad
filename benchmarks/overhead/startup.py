"""How long until `pipetune --help` answers?

Promise: under 0.25 s, importing no torch. Each command is a process of its own; `python -c pass` is timed in
alternation with it, and the ratio is what to compare between machines.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "pipetune --help": [sys.executable, "-m", "pipetune", "--help"],
    "pipetune sweep --help": [sys.executable, "-m", "pipetune", "sweep", "--help"],
    "pipetune --version": [sys.executable, "-m", "pipetune", "--version"],
}
LIMIT_S = 0.25


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> int:
    options = bench.arguments(__doc__)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range((10 if options.quick else 40) + 1):
        for name, command in COMMANDS.items():
            taken = seconds(command)
            if turn:  # the first round fills the page cache
                times[name].append(taken)
    plain = times["python -c pass"]
    rows, numbers = [], {}
    for name, taken in times.items():
        ratios = [t / p for t, p in zip(taken, plain, strict=True)]
        low, high = quantiles(ratios, n=20)[0], quantiles(ratios, n=20)[-1]
        rows.append([name, f"{1e3 * median(taken):.0f} ms", f"{median(ratios):.1f}", f"{low:.1f}..{high:.1f}"])
        numbers[name] = {"median_s": median(taken), "ratio_to_plain_python": median(ratios), "p5_p95": [low, high]}
    print(bench.table(["command", "median", "ratio", "5..95 %"], rows))
    probe = "import sys; sys.argv = ['pipetune', '--help']; import runpy\n"
    probe += "try: runpy.run_module('pipetune', run_name='__main__')\nexcept SystemExit: pass\n"
    probe += "sys.exit('torch' in sys.modules)"
    without_torch = (
        subprocess.run([sys.executable, "-c", probe], stdout=subprocess.DEVNULL, check=False).returncode == 0
    )
    holds = median(times["pipetune --help"]) < LIMIT_S and without_torch
    print(f"torch imported: {'no' if without_torch else 'YES'}")
    print("the promise holds" if holds else "THE PROMISE DOES NOT HOLD")
    bench.write(options.json, "startup", holds, {"commands": numbers, "imports_torch": not without_torch})
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
