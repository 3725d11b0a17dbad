"""The tests for a real GPU, run on the stand-in: all of ``tests/gpu`` but what needs values of kernels or DALI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT, fake_cuda, fake_nvml

#: Not run: DALI finds no device; a whole sweep is in test_sweep.py and every precision in test_accelerator.py; keeping
#: a device fed through batches of 128 images takes launches by the hundred thousand where there is no cuDNN; Triton
#: wants more of the driver's library than there is.
LEFT_OUT = (
    "not dali and not sweep_on_the_device and not fed_device_is_hardly_idle and not fp32 and not amp "
    "and not compiled_model"
)


@pytest.mark.parametrize(("files", "kernel_us", "least"), [
    # Slow: hundreds of thousands of launches. test_accelerator.py asks the same of a smaller model.
    pytest.param(["tests/gpu/test_cuda.py"], 20, 3, marks=pytest.mark.slow),
    pytest.param(["tests/gpu/test_training.py", "tests/gpu/test_observe.py"], 1500, 7, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_tests_for_a_gpu_pass(
    cuda_library: Path, nvml_library: Path, tmp_path: Path, files: list[str], kernel_us: int, least: int
) -> None:
    env = fake_cuda.environment(
        cuda_library, tmp_path, nvml=fake_nvml.HEALTHY, nvml_dir=nvml_library, kernel_us=kernel_us
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *files, "-k", LEFT_OUT, "-q", "-p", "no:randomly", "-p", "no:xdist",
         f"--basetemp={tmp_path / 'inner'}"],
        env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    passed = next(int(word) for word, after in zip(done.stdout.split(), done.stdout.split()[1:], strict=False)
                  if after.startswith("passed"))  # fmt: skip
    assert passed >= least
    assert fake_cuda.races(tmp_path) == []
