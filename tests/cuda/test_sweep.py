"""A whole sweep on the stand-in, with NVML's stand-in beside it: a device that is slower when the blocks begin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipetune.stats.intervals import differ
from tests import fake_cuda, fake_nvml

pytestmark = pytest.mark.slow

#: A loader whose samples take 20 ms each, asleep: one worker feeds half of what the device takes, three feed it. Its
#: images are larger than the sweep's --image-size.
PROGRAM = """
import os, sys
from tests.fake_cuda import forking
forking.install()
import pipetune
from pipetune.sweeping import loop

ceiling_of_block = loop._Bench.measure_ceiling_of_block
def of_a_warm_device(bench, block):
    if block:
        # Each child reads its knobs anew: within 0.06 s of its start the device is at its slowest.
        os.environ.update(FAKE_CUDA_SLOWER_PER_S="10", FAKE_CUDA_SLOWER_MAX="0.6")
    return ceiling_of_block(bench, block)
loop._Bench.measure_ceiling_of_block = of_a_warm_device

def make_loader(num_workers, prefetch_factor, batch_size):
    import time
    import torch
    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 202
        def __getitem__(self, index):
            time.sleep(0.02)
            return torch.zeros(3, 96, 96), index % 10
    return torch.utils.data.DataLoader(
        Slow(), batch_size, num_workers=num_workers, prefetch_factor=prefetch_factor, persistent_workers=num_workers > 0
    )

run = pipetune.sweep(
    make_loader, model="squeezenet1_1", device="cuda:0", workers=[0, 3], prefetch=[2], vary="none", seconds=0.5,
    blocks=1, batch_size=4, image_size=64, precision="fp32", out=sys.argv[1], progress=False,
)
print(json.dumps(open(sys.argv[1] + "/result.json").read()))
"""


@pytest.fixture(scope="module")
def swept(cuda_library: Path, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("sweep")
    scenario = fake_nvml.HEALTHY + "nvmlDeviceGetSamples now=90 ...\n"
    env = fake_cuda.environment(cuda_library, place, nvml=scenario, nvml_dir=nvml_library, kernel_us=60)
    result = json.loads(fake_cuda.run(PROGRAM, env, str(place / "run")))
    return {**result, "races": fake_cuda.races(place), "folder": place / "run"}


def measured(result: Any) -> list[Any]:
    return [row for row in result["outcomes"] if "failure" not in row]


def test_it_runs_to_its_end_on_the_device(swept: Any) -> None:
    assert swept["accelerator"]["kind"] == "cuda"
    assert swept["accelerator"]["name"] == "Fake GPU 0"
    # Whether its gain is proven in one block depends on how quiet the machine is.
    assert swept["edit"]["key"] == "own-w3-p2-b4"
    assert len(measured(swept)) == len(swept["outcomes"]) >= 3


def test_what_the_sampler_read_is_of_this_device(swept: Any) -> None:
    for row in measured(swept):
        assert row["gpu_util_pct"] == pytest.approx(90)
        assert row["gpu_mem_bytes"] == 1_000_000
        assert row["versions"]["driver"]


def test_goodput_is_never_above_what_the_device_takes(swept: Any) -> None:
    for row in measured(swept):
        assert 0 < row["goodput"] < 1.05
        assert row["h2d_frac"] > 0


def test_the_training_step_and_the_copy_are_stated_apart(swept: Any) -> None:
    for row in measured(swept):
        assert row["step_cores"] > 0
    assert 1e9 < swept["ceiling"]["copy_bytes_per_s"] < 12.5e9
    assert swept["ceiling"]["batch_shape"] == [4, 3, 96, 96]


def test_a_device_that_became_slower_is_measured_again_and_said_to_be(swept: Any) -> None:
    rows = [json.loads(line) for line in (swept["folder"] / "outcomes.jsonl").read_text().splitlines()]
    ceilings = [row for row in rows if row["role"] == "ceiling"]
    assert [row["block"] for row in ceilings][-1] == 1
    assert ceilings[-1]["measurement"]["samples_per_s"] < ceilings[0]["measurement"]["samples_per_s"]
    first, last = (row["measurement"] for row in (ceilings[0], ceilings[-1]))
    # A busy machine makes the intervals wide; tests/unit/sweeping/test_result.py has the sentence.
    seen = differ(first["samples_per_s"], first["ci95"], last["samples_per_s"], last["ci95"])
    assert any("the accelerator itself became" in doubt for doubt in swept["doubts"]) == seen


def test_no_buffer_was_written_too_early(swept: Any) -> None:
    assert swept["races"] == []
