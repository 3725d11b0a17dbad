"""The stand-in itself: it has what torch wants, keeps time as a stream does, sees a buffer written too early."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT, fake_cuda

#: What torch wants of libcudart and no test of ours reaches: CUDA graphs, memory pools, memory shared between
#: processes, kernels compiled at run time. Such a call ends up in the real libcudart, which finds no driver.
NOT_NEEDED = {
    "cudaDeviceEnablePeerAccess", "cudaDeviceGetDefaultMemPool", "cudaDeviceGetGraphMemAttribute",
    "cudaDeviceSetGraphMemAttribute", "cudaFreeAsync", "cudaGraphAddNode", "cudaGraphConditionalHandleCreate",
    "cudaGraphDestroy", "cudaGraphExecDestroy", "cudaGraphGetNodes", "cudaGraphInstantiateWithFlags",
    "cudaGraphLaunch", "cudaGraphNodeGetDependencies", "cudaGraphRetainUserObject", "cudaIpcCloseMemHandle",
    "cudaIpcGetEventHandle", "cudaIpcGetMemHandle", "cudaIpcOpenEventHandle", "cudaIpcOpenMemHandle",
    "cudaKernelSetAttributeForDevice", "cudaLibraryGetKernel", "cudaLibraryLoadData", "cudaLibraryUnload",
    "cudaMallocAsync", "cudaMemPoolGetAttribute", "cudaMemPoolSetAccess", "cudaMemPoolSetAttribute",
    "cudaMemPoolTrimTo", "cudaMemcpy2DAsync", "cudaStreamAddCallback", "cudaStreamBeginCapture",
    "cudaStreamBeginCaptureToGraph", "cudaStreamEndCapture", "cudaStreamUpdateCaptureDependencies",
    "cudaUserObjectCreate", "cudaUserObjectRelease",
}  # fmt: skip
#: What an older torch (2.11) wanted besides.
ONCE_WANTED = {"cudaGraphDebugDotPrint"}


def symbols(library: Path, kind: str) -> set[str]:
    done = subprocess.run(["nm", "-D", f"--{kind}-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines() if line.strip()}


def test_it_has_what_torch_wants_of_the_runtime(cuda_library: Path) -> None:
    ours = symbols(cuda_library / "libfakecuda.so", "defined")
    wanted: set[str] = set()
    for library in (fake_cuda.torch_folder() / "lib").glob("*.so"):
        if library.name == "libtorch_cpu.so":  # takes seconds to read, and is not linked with libcudart
            continue
        wanted |= {name for name in symbols(library, "undefined") if name.startswith(("cuda", "__cuda"))}
    lacking = sorted(wanted - ours - NOT_NEEDED - ONCE_WANTED)
    assert not lacking, f"this torch wants of libcudart what tests/fake_cuda lacks: {', '.join(lacking)}"
    assert not NOT_NEEDED & ours
    if is_pinned_torch():  # an older one wants less
        assert wanted >= NOT_NEEDED, f"not wanted any more: {NOT_NEEDED - wanted}"


def is_pinned_torch() -> bool:
    """Whether torch is the one of constraints.txt."""
    version = importlib.metadata.version("torch").partition("+")[0]
    return f"torch=={version}" in (ROOT / "constraints.txt").read_text().splitlines()


#: A stream's work takes its time, on the device and not on the host; events lie on the host's clock.
TIMES = """
import time, torch
a = torch.zeros(10, device="cuda")
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
torch.cuda.synchronize()
began = time.monotonic()
begin.record()
for _ in range(50):
    a.add_(1)
end.record()
launched_s, fired = time.monotonic() - began, end.query()
end.synchronize()
waited_s = time.monotonic() - began
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    side_done = torch.cuda.Event()
    side.wait_event(end)
    side_done.record()
print(json.dumps({
    "launched_s": launched_s, "fired": fired, "waited_s": waited_s, "ms": begin.elapsed_time(end),
    "kernels": counted()["kernels"], "name": torch.cuda.get_device_name(0), "side": side_done.query(),
}))
"""


def test_a_kernel_takes_time_on_the_device_alone(found: Any) -> None:
    got = found["times"]
    assert got["ms"] == pytest.approx(200, rel=0.1)
    assert got["launched_s"] < 0.15
    assert not got["fired"]
    assert got["waited_s"] >= 0.19
    assert got["side"]
    assert got["kernels"][0] >= 50
    assert got["name"] == "Fake GPU 0"


#: A page-locked buffer that is written again while its copy is queued; the same after the copy was seen to have ended;
#: a copy that was seen by an event of another stream, which waited for it or did not.
REUSE = """
import torch
def copy_then_write(wait):
    source = torch.full((1000,), 7.0).pin_memory()
    target = torch.empty(1000, device="cuda")
    target.copy_(source, non_blocking=True)
    wait()
    source.fill_(9)
    torch.cuda.synchronize()
    return target.cpu()[0].item()

def other_stream(waits):
    def wait():
        side = torch.cuda.Stream()
        if waits:
            side.wait_stream(torch.cuda.current_stream())
        done = torch.cuda.Event()
        done.record(side)
        done.synchronize()
        import time
        time.sleep(0.02)  # the copy has ended on the device, which nobody has asked
    return wait

found = {}
for name, wait in {
    "at once": lambda: None, "synchronised": torch.cuda.synchronize, "a stream that waited": other_stream(True),
    "a stream that did not": other_stream(False),
}.items():
    before = counted()["races"]
    found[name] = [copy_then_write(wait), counted()["races"] - before]
print(json.dumps(found))
"""


def test_a_buffer_that_is_written_too_early_is_seen(found: Any) -> None:
    assert found["reuse"] == {
        "at once": [9, 1],
        "synchronised": [7, 0],
        "a stream that waited": [7, 0],
        "a stream that did not": [9, 1],
    }
    assert all("were written again while a copy of them was queued" in line for line in found["races"])


PAGEABLE = """
import torch
source = torch.full((1000,), 7.0)
target = torch.empty(1000, device="cuda")
before = counted()["synchronisations"]
target.copy_(source, non_blocking=True)
waits = counted()["synchronisations"] - before
source.fill_(9)
torch.cuda.synchronize()
print(json.dumps([target.cpu()[0].item(), waits, counted()["races"]]))
"""


@pytest.mark.parametrize(("mode", "expected"), [
    ("staged", [7, 0, 0]), ("synchronous", [7, 1, 0]), ("deferred", [9, 0, 1]),
])  # fmt: skip
def test_pageable_memory_is_read_when_the_driver_likes(found: Any, mode: str, expected: list[Any]) -> None:
    assert found[mode] == expected


LIMITS = """
import torch
found = {}
def attempt(name, do):
    try:
        do()
        found[name] = None
    except Exception as error:
        found[name] = [type(error).__name__, str(error).splitlines()[0]]
attempt("fits", lambda: torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
attempt("device", lambda: torch.empty(300 << 20, dtype=torch.uint8, device="cuda"))
attempt("locked", lambda: torch.empty(80 << 20, dtype=torch.uint8).pin_memory())
attempt("first", lambda: torch.zeros(10, device="cuda").add_(1))
attempt("lost", lambda: [torch.zeros(10, device="cuda").add_(1) for _ in range(20)])
attempt("after", torch.cuda.synchronize)
print(json.dumps(found))
"""


def test_memory_ends_and_a_device_can_be_lost(found: Any) -> None:
    got = found["limits"]
    assert got["fits"] is None
    assert got["device"][0] == "OutOfMemoryError"
    assert got["locked"] == ["AcceleratorError", "CUDA error: out of memory"]
    assert got["first"] is None
    assert got["lost"] == ["AcceleratorError", "CUDA error: unspecified launch failure"]
    assert got["after"] == got["lost"]


@pytest.fixture(scope="module")
def found(cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each program above prints."""
    place = tmp_path_factory.mktemp("stand_in")
    modes = {mode: (PAGEABLE, {"pageable": mode}) for mode in ("staged", "synchronous", "deferred")}
    programs = {
        "times": (TIMES, {"kernel_us": 4000}), "reuse": (REUSE, {}), **modes,
        "limits": (LIMITS, {"memory_mb": 256, "locked_mb": 64, "fail": "cudaLaunchKernel:20:719+"}),
    }  # fmt: skip
    printed = fake_cuda.run_each(programs, fake_cuda.environment(cuda_library, place))
    return {**printed, "races": fake_cuda.races(place)}
