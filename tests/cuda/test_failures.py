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
