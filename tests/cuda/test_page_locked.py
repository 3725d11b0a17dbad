"""Page-locked memory and forks: a driver may take it away from forked processes, and loader processes need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda

#: A forked process writes into page-locked memory: that of torch, which the driver takes away, and shared memory that
#: pipetune has locked, from the middle of one page to the middle of another. Each status is that of the process.
PROGRAM = """
import mmap, os, warnings
import numpy as np, torch
from pipetune.loaders import page_locked

def write_in_fork(array):
    pid = os.fork()
    if not pid:
        array[:] = 7
        os._exit(0)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), int(array[0])]

torch_memory = torch.zeros(3 * mmap.PAGESIZE, dtype=torch.uint8).pin_memory().numpy()
pages = np.frombuffer(mmap.mmap(-1, 4 * mmap.PAGESIZE), np.uint8)
ours = pages[100 : 2 * mmap.PAGESIZE + 100]
locked = page_locked.page_lock(ours, 0)
found = {
    "torch": write_in_fork(torch_memory),
    "ours": [locked, *write_in_fork(ours)],
    "ring": write_in_fork(page_locked.locked_array((10,), np.uint8, 0)),
}
page_locked._DO_FORK = -1  # a kernel that refuses, as it does for the memory of a device
refused = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8)
before = counted()["locked_bytes"]
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    found["refused"] = [page_locked.page_lock(refused, 0), counted()["locked_bytes"] - before]
found["told"] = [str(warning.message) for warning in told]
print(json.dumps(found))
"""

SEGMENTATION_FAULT = -11


@pytest.fixture(scope="module", params=[1, 0], ids=["not inherited", "inherited"])
def found(request: pytest.FixtureRequest, cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("page_locked")
    printed = fake_cuda.run(PROGRAM, fake_cuda.environment(cuda_library, place, dontfork=request.param))
    return {**printed, "dontfork": request.param}


def test_the_stand_in_takes_page_locked_memory_away_from_forks(found: Any) -> None:
    assert found["torch"] == ([SEGMENTATION_FAULT, 0] if found["dontfork"] else [0, 0])  # private memory


def test_forked_processes_write_into_memory_that_pipetune_has_locked(found: Any) -> None:
    assert found["ours"] == [True, 0, 7]
    assert found["ring"] == [0, 7]


def test_memory_that_forks_cannot_inherit_is_not_locked(found: Any) -> None:
    assert found["refused"] == [False, 0]
    (message,) = found["told"]
    assert message == (
        "cannot page-lock 4.00 KiB for batches (forked processes cannot inherit it: Invalid argument), so copies to "
        "the GPU take longer: lower num_workers or prefetch"
    )
