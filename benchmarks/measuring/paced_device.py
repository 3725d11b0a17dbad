"""A device that sets the pace and scatters between processes: torch's CUDA code on the stand-in CUDA runtime.

``FAKE_CUDA_PACE_SD`` draws anew for each process by how much its kernels take longer; see ``tests/fake_cuda/knobs.h``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import bench
from pipetune.measure.harness import measure
from pipetune.records.sweep import AcceleratorSpec, Candidate, Measurement
from pipetune.stats.noise import device_noise, run_noise
from tests import fake_cuda

#: Relative standard deviations of the pace between processes.
SCATTERS = (0.015, 0.03)
#: Time of a kernel (µs), long enough that launching the kernels of a step takes less than running them.
KERNEL_US = 150
CANDIDATE = Candidate(backend="opencv", num_workers=1, prefetch_depth=2, batch_size=8)


def why_not() -> str | None:
    """Why the stand-in cannot be used here; ``None``: it can."""
    return fake_cuda.why_not()


def measure_all(folder: Path, scatter: float, repeats: int) -> dict[str, list[Measurement]]:
    """A ceiling and a candidate in turn, as in the blocks of a sweep; candidate -> its repeats."""
    place = folder / f"cuda-{scatter:g}"  # LD_PRELOAD knows no spaces
    library = place / "lib"
    library.mkdir(parents=True)
    setting = bench.loader_setting(place, "synthetic:caltech256?n=200", seconds=3.0, image_size=64)
    accelerator = AcceleratorSpec(kind="cuda", name="stand-in", device_index=0)
    workload = replace(setting.workload, accelerator=accelerator, model="squeezenet1_1", precision="fp32")
    setting = replace(setting, workload=workload)
    ceilings: list[Measurement] = []
    found: list[Measurement] = []
    with variables(fake_cuda.environment(fake_cuda.build(library), place, pace_sd=scatter, kernel_us=KERNEL_US)):
        for turn in range(repeats):
            for role, kept in (("ceiling", ceilings), ("candidate", found)):
                outcome, _ = measure(
                    CANDIDATE, role, replace(setting, device_noise=device_noise(ceilings, "cuda")),
                    ceiling=ceilings[-1] if role == "candidate" else None, run_noise=run_noise(found, [found]),
                )  # fmt: skip
                if outcome.measurement is None:
                    raise SystemExit(f"{role} on the stand-in CUDA runtime failed: {outcome.failure}")
                kept.append(outcome.measurement)
            rates = f"{ceilings[-1].samples_per_s:8.1f}/s, candidate {found[-1].samples_per_s:8.1f}/s"
            print(f"{turn + 1:2}/{repeats} device, {100 * scatter:g} %: ceiling {rates}", flush=True)
    return {f"{CANDIDATE.key} at {100 * scatter:g} %": found}


@contextmanager
def variables(environment: dict[str, str]) -> Iterator[None]:
    """Child processes get this environment."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
