"""A measured loader to ask about: 2 ms of CPU time per image, two workers on four cores, an accelerator of 5,000/s."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetune.answering.base import Base
from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.predicting.model import Costs
from pipetune.records.explanation import COLLATE, DECODE, FETCH, HAND_OVER, TRANSFORM, StageCost
from pipetune.records.sweep import AcceleratorSpec, Candidate, Workload
from tests.unit.samples import sample

ACCELERATOR = AcceleratorSpec(kind="emulated", name="EMULATED 5,000/s", rate_samples_per_s=5000.0)
_STAGES = ((FETCH, 0.1), (DECODE, 1.2), (TRANSFORM, 0.5), (COLLATE, 0.15), (HAND_OVER, 0.05))


def image(number: int, width: int = 500, height: int = 375, size: int = 98_000) -> ImageFile:
    return ImageFile(
        path=f"/photos/{number}.jpg", label=0, size_bytes=size, width=width, height=height, orientation=1,
        format="jpeg", progressive=False,
    )  # fmt: skip


def images(count: int = 100) -> ImageSet:
    return ImageSet(
        name="photos", root="/photos", classes=("a",), images=tuple(map(image, range(count))), found_images=count,
        skipped=(), skipped_count=0,
    )  # fmt: skip


def stages() -> tuple[StageCost, ...]:
    return tuple(
        StageCost(stages=(name,), cpu_s_per_1000_samples=ms, ci95=(0.9 * ms, 1.1 * ms), samples_per_s=1000.0,
                  rate_ci95=(900.0, 1100.0))
        for name, ms in _STAGES
    )  # fmt: skip


def base(**changes: Any) -> Base:
    workload = replace(
        sample(Workload), accelerator=ACCELERATOR, ranks=1, image_size=224, model="resnet50", cache="warm", sync="step",
        bind="none", loader_path=None, dataset="photos", augment="basic",
    )  # fmt: skip
    values: dict[str, Any] = {
        "path": Path("/runs/explained"),
        "candidate": Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64),
        "workload": workload, "cores": 4.0, "measured_samples_per_s": 1000.0, "images": images(), "stages": stages(),
        "costs": Costs(load_s=0.002, worker_s=0.002, demand_per_s=5000.0), "pss_bytes": 2**30,
    }  # fmt: skip
    return Base(**(values | changes))
