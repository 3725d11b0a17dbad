"""What torch says when memory ends or a device is lost, on the stand-in, and what pipetune makes of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda, fake_nvml

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
    assert all(word in texts[what]["hint"] for word in ("--workers", "--prefetch", "page-locked"))


#: Three candidates, whose children see the stand-in with what is set before each.
PHASES = """
import os, sys
from dataclasses import replace
from pathlib import Path
from tests.fake_cuda import forking
forking.install()
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
full = Path(sys.argv[1]) / "full"

def fill(live):
    # The child begins with its first batch: from now on there is no memory left.
    if live.phase == "first_batch":
        full.write_text("2")

for name, knobs, workers in (
    ("warm-up", {"MEMORY_MB": "2"}, 0),
    ("first batch", {"LOST": str(full)}, 0),
    ("page-locked", {"LOCKED_MB": "0.3"}, 1),  # one batch, and not a second one
):
    os.environ.update({f"FAKE_CUDA_{knob}": value for knob, value in knobs.items()})
    chosen = replace(candidate("pillow", workers, 4), pin_memory=bool(workers))
    failure = harness.measure(chosen, "candidate", conditions, on_live=fill)[0].failure
    found[name] = failure and [failure.kind, failure.phase]
    for knob in knobs:
        del os.environ[f"FAKE_CUDA_{knob}"]
print(json.dumps(found))
"""


def test_a_candidate_without_memory_says_where(cuda_library: Path, tmp_path: Path) -> None:
    got = fake_cuda.run(PHASES, fake_cuda.environment(cuda_library, tmp_path), str(tmp_path))
    assert got["warm-up"] == ["out_of_gpu_memory", "open"]
    assert got["first batch"][0] == "out_of_gpu_memory"
    assert got["first batch"][1] in ("first_batch", "warmup")  # it has begun by the time that we have heard of it
    assert got["page-locked"][0] == "out_of_locked_memory"
    assert got["page-locked"][1] in ("first_batch", "warmup", "timed")  # as soon as a second batch waits


#: The whole command, twice: the device is lost while the second candidate runs, and there again for --resume.
LOST = """
import contextlib, io, os, sys
from pathlib import Path
from tests.fake_cuda import forking
forking.install()
from pipetune.cli.app import app
from pipetune.errors import PipetuneError
from pipetune.measure.session import Session
from pipetune.sweeping import accelerator
from tests.photo_set import small_photos

accelerator.count_cuda_devices = lambda wanted: (1, None)  # spares a process that only imports torch
folder, util, lost = Path(sys.argv[1]), Path(sys.argv[2]), Path(os.environ["FAKE_CUDA_LOST"])
take, first_batches = Session._on_message, []
def take_and_lose(self, message):
    take(self, message)
    if message["type"] == "first_batch":
        first_batches.append(message)
        if len(first_batches) == 3:
            lost.touch()
            util.write_text("!15")
Session._on_message = take_and_lose

def command(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = app(list(words), standalone_mode=False) or 0
        except PipetuneError as error:
            print(error)
            code = error.exit_code
    stored = [json.loads(line) for line in (folder / "run" / "outcomes.jsonl").read_text().splitlines()]
    return [code, out.getvalue(), [row["failure"] and row["failure"]["kind"] for row in stored]]

util.write_text("90")
photos = small_photos(folder / "photos", copies=4)
sweep = command(
    "sweep", "--dataset", str(photos), "--out", str(folder / "run"), "--device", "cuda:0", "--batch-size", "4",
    "--image-size", "64", "--model", "squeezenet1_1", "--precision", "fp32", "--seconds", "0.3", "--workers", "0",
    "--prefetch", "2", "--backends", "pillow", "--vary", "none", "--blocks", "0", "--grid",
)
lost.unlink()
util.write_text("90")
print(json.dumps([sweep, command("sweep", "--resume", str(folder / "run"))]))
"""


@pytest.mark.slow  # two whole sweeps
@pytest.mark.timeout(330)  # two sweeps: on a busy machine they take minutes
def test_a_device_lost_in_a_sweep_ends_it_and_nothing_is_lost(
    cuda_library: Path, nvml_library: Path, tmp_path: Path
) -> None:
    util = tmp_path / "util"
    nvml = f"{fake_nvml.HEALTHY}nvmlDeviceGetSamples !3\nnvmlDeviceGetUtilizationRates file:{util}\n"
    env = fake_cuda.environment(
        cuda_library, tmp_path, nvml=nvml, nvml_dir=nvml_library, lost=tmp_path / "lost", kernel_us=100
    )
    (code, text, kinds), (code_again, text_again, kinds_again) = fake_cuda.run(
        LOST, env, str(tmp_path), str(util), timeout_s=300
    )

    assert (code, kinds) == (1, [None, None, "device_lost"])
    (said,) = [line for line in text.splitlines() if line.startswith("FAILED")]
    # Which call is the first to fail, and so in whose words, is chance.
    assert re.search(r"the accelerator is lost: (RuntimeError: )?CUDA error: .+; NVML: ", said)
    assert "GPU is lost" in said
    assert f"resume with: pipetune sweep --resume {tmp_path / 'run'}" in text
    assert len([line for line in text.splitlines() if line.startswith("✓ ")]) == 2  # what was measured before is there
    assert code_again == 0
    # On a busy machine something may be measured a second time.
    assert kinds_again[:3] == kinds
    assert set(kinds_again[3:]) == {None}
    assert "FAILED" not in text_again
