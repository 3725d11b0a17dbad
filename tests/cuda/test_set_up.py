"""A device whose context takes seconds: each candidate's set-up says so, and the budget of a sweep counts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda, fake_nvml

pytestmark = pytest.mark.slow

#: What the driver takes for a context (s), and the budget: the ceiling and two candidates fit, and a third would not.
CONTEXT_S, BUDGET_S = 3.0, 24

#: A loader that is fast, in a grid of many candidates.
PROGRAM = """
import sys
from tests.fake_cuda import forking
forking.install()
import json
import pipetune

def make_loader(num_workers, prefetch_factor, batch_size):
    import torch
    class Fast(torch.utils.data.Dataset):
        def __len__(self):
            return 2000
        def __getitem__(self, index):
            return torch.zeros(3, 32, 32), index % 10
    return torch.utils.data.DataLoader(
        Fast(), batch_size, num_workers=num_workers, prefetch_factor=prefetch_factor, persistent_workers=num_workers > 0
    )

out, budget_s = sys.argv[1:]
pipetune.sweep(
    make_loader, model="squeezenet1_1", device="cuda:0", workers=[0, 1, 2, 3], prefetch=[1, 2, 4, 8], vary="none",
    seconds=0.3, batch_size=4, image_size=32, precision="fp32", grid=True, budget=float(budget_s), out=out,
    progress=False,
)
print(json.dumps(open(out + "/result.json").read()))
"""


@pytest.fixture(scope="module")
def swept(cuda_library: Path, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("slow")
    env = fake_cuda.environment(
        cuda_library, place, nvml=fake_nvml.HEALTHY, nvml_dir=nvml_library, context_ms=1000 * CONTEXT_S, kernel_us=30
    )
    result = json.loads(fake_cuda.run(PROGRAM, env, str(place / "run"), str(BUDGET_S)))
    return {**result, "calls": fake_nvml.calls(place)}


def test_the_context_of_each_candidate_is_stated_apart_from_model_and_warm_up(swept: Any) -> None:
    for row in (swept["ceiling"], *swept["outcomes"]):
        stages = row["set_up"]
        assert stages["context_s"] >= CONTEXT_S
        assert stages["model_s"] > 0
        assert stages["warm_up_s"] > 0
        assert row["wall_s"] > sum(stages.values()) + row["timed_s"]


def test_the_budget_ends_the_sweep_before_a_candidate_that_would_overrun_it(swept: Any) -> None:
    rows = [swept["ceiling"], *swept["outcomes"]]
    assert not swept["complete"]
    assert 2 <= len(rows) <= BUDGET_S / CONTEXT_S
    if rows[-1]["role"] != "baseline":  # which is measured in any case
        walls = [row["wall_s"] for row in rows[:-1]]
        assert sum(walls) + min(walls) <= BUDGET_S


def test_nvml_is_opened_once_for_all_candidates(swept: Any) -> None:
    """Before them, another process lists the GPUs."""
    assert swept["calls"].count("nvmlDeviceGetHandleByUUID") == 1
