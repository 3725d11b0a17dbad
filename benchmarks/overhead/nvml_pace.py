"""What does a slow NVML leave of the GPU's utilisation? The sampler reads the fake NVML of the tests.

Promise: a driver of 1 ms a call still tells 10 values a second, or the sampler says that it cannot.

Every call of the fake takes 0 to 3 ms, once asleep and once on the processor, as a driver that polls the GPU. It keeps
no samples, or 20 a second. Counted are the values of the utilisation a second, from the third second on, the calls, the
CPU time of the sampler's thread, which must stay below 1 % of a core, and whether the sampler says that it is too slow,
which it must where there are fewer than 9 values a second, and must not elsewhere. This proves the pace; what the calls
of a real driver take is not known from it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from tests import ROOT, fake_nvml

MAX_CORE_FRAC, MIN_VALUES_PER_S, INTERVAL_S, SET_UP_S = 0.01, 9.0, 0.1, 3.0
#: Microseconds of each call, asleep and computing.
CALLS = ((0, 0), (100, 0), (500, 0), (1000, 0), (3000, 0), (0, 1000), (0, 3000))
_SCENARIO = """
nvmlDeviceGetSamples -
nvmlDeviceGetUtilizationRates 10 60 80 70 90 20 ...
"""
_READ = """
import json, os, sys, time
from pipetune.machine.nvml.gpu import open_gpu
from pipetune.sampler.loop import Sampler
seconds, interval_s, set_up_s = (float(word) for word in sys.argv[1:])
gpu = open_gpu()
sampler = Sampler(os.getpid(), gpu, interval_s=interval_s)
sampler.start()
time.sleep(set_up_s)
before, spent_s, began_ns = gpu.call_cost_s(), sampler.cpu_s, time.monotonic_ns()
time.sleep(seconds)
after, cpu_s = gpu.call_cost_s(), sampler.cpu_s - spent_s
took_s = (time.monotonic_ns() - began_ns) / 1e9
problem = gpu.describe_slow_utilisation(interval_s)
sampler.stop()
calls = {name: count - before.get(name, (0, 0))[0] for name, (count, _) in after.items()}
samples = len([span for span in gpu.busy_spans(began_ns) if span.t_end_ns < began_ns + 1e9 * (took_s - 1)])
print(json.dumps({
    "calls": calls, "calls_s": sum(cost for _, cost in after.values()) - sum(cost for _, cost in before.values()),
    "core_frac": cpu_s / took_s, "seconds": took_s, "samples_per_s": samples / (took_s - 1), "problem": problem,
}))
"""


def main(options: Namespace) -> bench.Result:
    seconds = 6.0 if options.quick else 20.0
    rows, numbers, holds = [], [], True
    with tempfile.TemporaryDirectory() as place:
        library = fake_nvml.build(Path(place))
        for samples in (False, True):
            for call_us, spin_us in CALLS:
                seen = read(library, call_us, spin_us, seconds, samples=samples)
                rates = seen["calls"].get("nvmlDeviceGetUtilizationRates", 0) / seen["seconds"]
                values = seen["samples_per_s"] if samples else rates
                enough = values >= MIN_VALUES_PER_S
                well = seen["core_frac"] < MAX_CORE_FRAC and enough == (seen["problem"] is None)
                holds &= well
                numbers.append({"call_us": call_us, "spin_us": spin_us, "keeps_samples": samples, **seen})
                rows.append([
                    f"{call_us / 1000:g} ms asleep" if call_us or not spin_us else f"{spin_us / 1000:g} ms computing",
                    "20/s" if samples else "none", f"{values:.1f}/s", f"{sum(seen['calls'].values()) / seconds:.0f}/s",
                    f"{seen['calls_s'] / seen['seconds']:.1%}", f"{seen['core_frac']:.2%}",
                    "yes" if seen["problem"] else "no", bench.yes(well),
                ])  # fmt: skip
    headings = ["each call", "samples kept", "values", "calls", "time in calls", "of a core", "told", "as promised"]
    print(bench.table(headings, rows))
    return bench.Result(holds, {"drivers": numbers})


def read(library: Path, call_us: int, spin_us: int, seconds: float, *, samples: bool) -> dict[str, Any]:
    """What the sampler reads of such a driver, in a process that finds it."""
    scenario = fake_nvml.HEALTHY + _SCENARIO + f"call_us {call_us}\nspin_us {spin_us}\n"
    if samples:
        file = library / "samples.replay"
        stamps = range(0, round(1e6 * (seconds + SET_UP_S + 10)), 50_000)
        file.write_text("".join(f"{stamp} {stamp}={stamp // 50_000 % 100}\n" for stamp in stamps))
        scenario += f"nvmlDeviceGetSamples replay:{file}\n"
    environment = fake_nvml.environment(library, scenario)
    del environment["FAKE_NVML_LOG"]
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(seconds), str(INTERVAL_S), str(SET_UP_S)],
        env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
