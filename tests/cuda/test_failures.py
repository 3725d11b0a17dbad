"""What torch says when memory ends or a device is lost, on the stand-in, and what pipetune makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda

#: One process, because importing torch takes longest: each kind of memory ends for real, once.
TEXTS = """
import torch
from pipetune.measure import failures
found = {}
def attempt(name, do):
    try:
        do()
    except Exception as error:
        found[name] = {k: getattr(failures.from_exception(error, "open", ""), k) for k in ("kind", "message", "hint")}
def pinned():  # from a file: a program of -c has no lines for a traceback
    torch.utils.data._utils.pin_memory.pin_memory(torch.zeros(4 << 20, dtype=torch.uint8))
class Set(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        return torch.zeros(4 << 20, dtype=torch.uint8)
attempt("stream", torch.cuda.Stream)
attempt("event", lambda: torch.cuda.Event().record())
attempt("cublas", lambda: torch.zeros(8, 8, device="cuda") @ torch.zeros(8, 8, device="cuda"))
attempt("memory", lambda: torch.empty(300 << 20, dtype=torch.uint8, device="cuda"))
attempt("page-locked", pinned)
attempt("pin thread", lambda: list(torch.utils.data.DataLoader(Set(), num_workers=1, pin_memory=True)))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def texts(cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    fail = "cudaStreamCreateWithPriority:1:2,cudaEventCreateWithFlags:1:2,cublasCreate_v2:1:3"
    env = fake_cuda.environment(
        cuda_library, tmp_path_factory.mktemp("texts"), memory_mb=256, locked_mb=1, fail=fail
    )  # fmt: skip
    return fake_cuda.run(TEXTS, env)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("memory", "CUDA out of memory"),
        ("stream", "CUDA error: out of memory"),
        ("event", "CUDA error: out of memory"),
        ("cublas", "CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)
def test_a_gpu_without_memory_is_named(texts: Any, what: str, text: str) -> None:
    assert texts[what]["kind"] == "out_of_gpu_memory"
    assert texts[what]["message"].startswith(text) or what == "cublas"
    assert text in texts[what]["message"]
    assert "--batch-size" in texts[what]["hint"]


@pytest.mark.parametrize("what", ["page-locked", "pin thread"])
def test_a_host_without_page_locked_memory_is_named(texts: Any, what: str) -> None:
    assert texts[what]["kind"] == "out_of_locked_memory"
    assert texts[what]["message"].endswith("CUDA error: out of memory")
    assert all(word in texts[what]["hint"] for word in ("--workers", "--prefetch", "ulimit -l"))


#: The parent has no torch; its children see the stand-in, with what is set before each.
PHASES = """
import os, sys
from dataclasses import replace
from pipetune.datasets.index import write_index
from pipetune.measure import harness
from pipetune.records.sweep import AcceleratorSpec
from tests.photo_set import PHOTOS, candidate, scan, workload
index = sys.argv[1] + "/index.json"
images = scan(PHOTOS)
write_index(index, images)
cuda = AcceleratorSpec(kind="cuda", name="CUDA device 0", device_index=0)
asked = workload(
    accelerator=cuda, index_path=index, image_size=64, seconds=0.4, model="squeezenet1_1", precision="fp32"
)
conditions = harness.Conditions(workload=asked, paths=[], cores=frozenset({0}))
found = {}
for name, knobs, workers in (
    ("warm-up", {"MEMORY_MB": "2"}, 0),
    ("first batch", {"FAIL": "cudaEventCreateWithFlags:6:2"}, 0),
    ("page-locked", {"LOCKED_MB": "1"}, 1),
):
    os.environ.update({f"FAKE_CUDA_{knob}": value for knob, value in knobs.items()})
    chosen = replace(candidate("pillow", workers, 4), pin_memory=bool(workers))
    failure = harness.measure(chosen, "candidate", conditions)[0].failure
    found[name] = failure and [failure.kind, failure.phase]
    for knob in knobs:
        del os.environ[f"FAKE_CUDA_{knob}"]
print(json.dumps(found))
"""


def test_a_candidate_without_memory_says_where(cuda_library: Path, tmp_path: Path) -> None:
    got = fake_cuda.run(PHASES, fake_cuda.environment(cuda_library, tmp_path), str(tmp_path))
    assert got == {
        "warm-up": ["out_of_gpu_memory", "open"],
        "first batch": ["out_of_gpu_memory", "first_batch"],
        "page-locked": ["out_of_locked_memory", "warmup"],
    }
