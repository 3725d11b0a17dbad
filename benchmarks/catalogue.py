"""Every benchmark, from the shortest to the longest, and how long it may take."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import promise_of

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A program of this folder."""

    path: str
    """Below this folder, such as ``overhead/startup.py``."""
    quick_limit_s: float
    """Time limit with ``--quick``: about three times what it takes on two cores."""
    limit_s: float
    """Time limit without."""

    @property
    def name(self) -> str:
        """Its file's name without the ending."""
        return Path(self.path).stem

    @property
    def folder(self) -> str:
        """Its folder with a slash."""
        return f"{Path(self.path).parent}/"

    @property
    def promise(self) -> str:
        """One line from its docstring."""
        return promise_of(ast.get_docstring(ast.parse((FOLDER / self.path).read_text())) or "")


BENCHMARKS = (
    Benchmark("overhead/startup.py", 120, 300),
    Benchmark("measuring/synthetic_match.py", 120, 300),
    Benchmark("overhead/many_files.py", 180, 900),
    Benchmark("robustness/formats.py", 120, 120),
    Benchmark("packing/pack_many.py", 240, 3600),
    Benchmark("packing/pack_resume.py", 240, 1800),
    Benchmark("overhead/plotting.py", 240, 1200),
    Benchmark("robustness/fuzz.py", 240, 2400),
    Benchmark("search/search_regret.py", 240, 6000),
    Benchmark("search/edits.py", 600, 2400),
    Benchmark("overhead/nvml_pace.py", 400, 1200),
    Benchmark("overhead/sampler_overhead.py", 400, 1500),
    Benchmark("robustness/writes.py", 400, 2400),
    Benchmark("measuring/emulated_rates.py", 600, 2700),
    Benchmark("search/batch_size_search.py", 400, 1800),
    Benchmark("overhead/many_hosts.py", 120, 600),
    Benchmark("overhead/array_task.py", 240, 900),
    Benchmark("loaders/numpy_arrays.py", 240, 1200),
    Benchmark("loaders/augmentation.py", 180, 600),
    Benchmark("search/scaling_prediction.py", 600, 3600),
    Benchmark("packing/pack_peers.py", 400, 2400),
    Benchmark("packing/pack_gain.py", 1100, 3600),
    Benchmark("robustness/leaks.py", 600, 3600),
    Benchmark("search/time_to_recommendation.py", 1100, 7200),
    Benchmark("scripts/own_script.py", 1500, 7200),
    Benchmark("scripts/no_gain.py", 1500, 7200),
    Benchmark("scripts/stated_gain.py", 1500, 14400),
    Benchmark("measuring/bench_process.py", 700, 4500),
    Benchmark("robustness/resume.py", 800, 2400),
    Benchmark("measuring/explain_closure.py", 900, 5400),
    Benchmark("measuring/whatif_error.py", 900, 5400),
    Benchmark("measuring/noise_floor.py", 900, 3600),
    Benchmark("search/ranks_truth.py", 900, 5400),
    Benchmark("loaders/training_loss.py", 900, 3600),
    Benchmark("search/search_stability.py", 1200, 3000),
    Benchmark("overhead/watch_overhead.py", 1300, 5400),
    Benchmark("loaders/loaders.py", 1500, 18000),
    Benchmark("watch/watch_verdicts.py", 1800, 9000),
)
