"""Does pipetune keep its promises on a real GPU? Everything that needs one, in one run and one result.

Parts, each in a process of its own with a time limit, so that one that crashes or hangs does not lose the others:

- ``device``   what is measured on: GPU, driver, CUDA, torch, Python and the decode backends that are there
- ``tests``    the tests that need a GPU (tests/gpu), with a bare pytest
- ``sweep``    a sweep on the GPU with every backend that is there: its ceiling, its recommendation, all outcomes
- ``clocks``   clock, power and rate of a model that trains without a pause: how much slower the device becomes
- ``nvml``     what each NVML call of the sampler costs, and a whole reading, while the GPU is idle and while it is busy
- ``parity``   do batches decoded on the GPU show the pictures that Pillow shows, and are they the same every time?
- ``batch``    the batch size of a model and of a script: is the largest that is said to fit the largest?

Promise: on a GPU no test fails, every candidate is measured, the sampler takes under 1 % of a core, and pictures match.

Pictures match when they are those of the reference decoder, and when batches decoded on the GPU do not change while
they are in use, whether the GPU is busy or not.

A part that lacks a package is skipped and says which. Takes about 9 minutes, with ``--quick`` 4. The result is written
after each part to ``gpu-suite-DEVICE-DATE.json`` in the folder ``--out`` (default: benchmarks/results), or to
``--json``. Exit code: 0 no problem was found, 1 a problem was found, 2 there is no CUDA device.

    python benchmarks/gpu/suite.py --only sweep,parity
    python benchmarks/gpu/suite.py --device emulated      no GPU: runs the suite's own code
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Part -> its time limit (s), with --quick and without.
LIMITS_S = {
    "device": (60, 60),
    "tests": (120, 240),
    "sweep": (170, 330),
    "clocks": (60, 110),
    "nvml": (60, 90),
    "parity": (90, 150),
    "batch": (120, 240),
}
#: All parts together, so that ten minutes on a machine suffice.
TOTAL_S = 595
_STAND_INS = Path(__file__).resolve().parent / "stand_ins"
_TAIL_LINES = 25
#: A path in a text: results do not name the folders of a machine.
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/'\":,()]+/)+")


def main() -> int:
    stand_ins = complete_the_path()
    from benchmarks import bench

    options = bench.arguments(
        __doc__, only="parts, comma separated", device="cuda:N (default cuda:0), or emulated to test the suite itself",
        out="folder for the result", part="used by the suite itself: run one part here, its numbers to --json",
    )  # fmt: skip
    device = options.device or "cuda:0"
    if options.part:
        return run_here(options.part, device, options.quick, options.json)
    chosen = options.only.split(",") if options.only else list(LIMITS_S)
    if unknown := set(chosen) - set(LIMITS_S):
        print(f"no part {', '.join(sorted(unknown))}: choose from {', '.join(LIMITS_S)}", file=sys.stderr)
        return 2
    if device.startswith("cuda") and (problem := no_cuda_device()):
        print(f"skipped: no CUDA device: {problem}", file=sys.stderr)
        return bench.SKIPPED
    kind = "gpu-suite-quick" if options.quick else "gpu-suite"
    out = Path(options.out or ROOT / "benchmarks" / "results")
    file = options.json or out / f"{kind}-{device_slug(device)}-{datetime.now().date()}.json"
    parts: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + TOTAL_S
    left = [name for name in LIMITS_S if name in chosen]
    while left:
        name = left.pop(0)
        limit_s = min(LIMITS_S[name][not options.quick], deadline - time.monotonic())
        parts[name] = run_in_process(name, device, options.quick, limit_s)
        show(name, parts[name])
        holds = all(part["status"] != "failed" for part in parts.values())
        bench.write(file, "gpu_suite", holds, {
            "holds": holds, "quick": options.quick, "device": device, "stand_ins": stand_ins, "not_run_yet": left,
            "parts": parts,
        })  # fmt: skip
    print("\nno problem was found" if holds else "\nPROBLEMS in " + ", ".join(failed(parts)))
    print(f"result: {file.name}")
    return bench.HOLDS if holds else bench.MISSED


def complete_the_path() -> list[str]:
    """Make the checkout importable here and in all descendants; the packages that stand-ins replace."""
    missing = [path.stem for path in _STAND_INS.glob("*.py") if importlib.util.find_spec(path.stem) is None]
    folders = [str(ROOT), *([str(_STAND_INS)] if missing else [])]
    sys.path[:0] = folders
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    return missing


def no_cuda_device() -> str | None:
    """Why there is no CUDA device; ``None``: there is one."""
    from pipetune.accelerator.cuda_devices import count_cuda_devices

    count, reason = count_cuda_devices(wanted=True)
    return None if count else reason or "torch sees none on this machine"


def device_slug(device: str) -> str:
    """The first GPU as NVML names it, for a file name: ``nvidia-h100-80gb-hbm3``."""
    from pipetune.machine.nvml.gpu import NvmlUnavailable, list_gpus

    name = device
    if device.startswith("cuda"):
        try:
            name = next(gpu.name for gpu in list_gpus() if gpu.name)
        except (NvmlUnavailable, StopIteration):
            name = "gpu"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def run_here(name: str, device: str, quick: bool, file: Path) -> int:
    """Run one part in this process; it returns its numbers, lines to print about them, and the problems it found."""
    from benchmarks import bench
    from benchmarks.gpu import batch_sizes, clocks, nvml_cost, parity, parts

    functions: dict[str, Callable[[str, bool], dict[str, Any]]] = {
        "device": parts.device, "tests": parts.tests, "sweep": parts.sweep, "clocks": clocks.clocks,
        "nvml": nvml_cost.nvml, "parity": parity.parity,
        "batch": batch_sizes.batch_sizes,
    }  # fmt: skip
    try:
        content = functions[name](device, quick)
    except bench.Skipped as reason:
        content = {"skipped": str(reason)}
    file.write_text(json.dumps(content, allow_nan=False))
    return 0


def run_in_process(name: str, device: str, quick: bool, limit_s: float) -> dict[str, Any]:
    """Run one part in a process that may crash or hang; ``status`` is ``ok``, ``failed`` or ``skipped``."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-suite-") as folder:
        file, log = Path(folder, "part.json"), Path(folder, "log.txt")
        command = [sys.executable, __file__, "--part", name, "--device", device, "--json", str(file)]
        places = dict.fromkeys(("TMPDIR", "XDG_CACHE_HOME", "CUDA_CACHE_PATH", "TORCH_HOME"), folder)
        environment = {**os.environ, **places, "PYTHONNODEBUGRANGES": "1"}
        error = None
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *(["--quick"] if quick else [])], stdout=output, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, env=environment, start_new_session=True,
            )  # fmt: skip
            try:
                if code := process.wait(timeout=max(1.0, limit_s)):
                    error = f"ended with {f'exit code {code}' if code > 0 else signal.Signals(-code).name}"
            except subprocess.TimeoutExpired:
                error = f"not done after {limit_s:.0f} s"
            finally:
                end_group(process)
        content: dict[str, Any] = {}
        try:
            content = json.loads(file.read_text())
        except (OSError, ValueError):
            error = error or f"left no result: {traceback.format_exc(limit=0)}"
        if error:
            tail = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
            content = {**content, "problems": [error], "log_tail": tail}
    status = "failed" if content.get("problems") else "skipped" if "skipped" in content else "ok"
    part = {"status": status, "seconds": round(time.monotonic() - began, 1), **content}
    cleaned: dict[str, Any] = without_folders(part)
    return cleaned


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the part and what it started; a process with a session of its own dies with the one that started it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def without_folders(value: Any) -> Any:
    """The same without the folders in its texts."""
    if isinstance(value, dict):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_folders(inner) for inner in value]
    return _FOLDERS.sub("…/", value) if isinstance(value, str) else value


def show(name: str, part: dict[str, Any]) -> None:
    """Print what a part found."""
    print(f"\n== {name}: {part['status']} ({part['seconds']:.0f} s)", flush=True)
    for line in [part.get("skipped"), *part.pop("lines", []), *part.get("log_tail", [])]:
        if line:
            print(f"   {line}")
    for problem in part.get("problems", []):
        print(f"   PROBLEM: {problem}", flush=True)


def failed(parts: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, part in parts.items() if part["status"] == "failed"]


if __name__ == "__main__":
    sys.exit(main())
