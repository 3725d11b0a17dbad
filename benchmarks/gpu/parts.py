"""Three parts of the GPU suite: what is measured on, the tests, and a sweep."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import bench
from pipetune.machine.nvml.gpu import NvmlUnavailable, open_gpu
from pipetune.registry import BACKENDS, installed_version

ROOT = Path(__file__).resolve().parents[2]
#: Works with any pytest, with and without plugins: the project's own settings name options of a plugin.
BARE_PYTEST = (
    "-c", os.devnull, "--rootdir", str(ROOT), "--confcutdir", str(ROOT), "-p", "no:cacheprovider", "-q",
    "-o", "markers=gpu: needs a CUDA device\ntimeout: longest time, for a plugin that may be absent",
)  # fmt: skip
_MESSAGE_LINES = 12


def device(name: str, quick: bool) -> dict[str, Any]:
    """GPU, driver, CUDA, torch, Python and decode backends of this machine."""
    import torch

    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "backends": {backend.name: installed_version(backend) for backend in BACKENDS.values()},
    }
    problems = []
    if name.startswith("cuda"):
        properties = torch.cuda.get_device_properties(name)
        found["gpu"] = {
            "name": properties.name, "memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count, "devices": torch.cuda.device_count(),
        }  # fmt: skip
        try:
            gpu = open_gpu(uuid=str(properties.uuid))
            found["driver"] = gpu.driver_version
            gpu.close()
        except NvmlUnavailable as error:
            problems.append(f"NVML: {error}")
    lines = [f"{key}: {value}" for key, value in found.items()]
    return {**found, "lines": lines, "problems": problems}


def tests(name: str, quick: bool) -> dict[str, Any]:
    """Run the tests in tests/gpu; with ``quick`` without their sweep, since the suite has one of its own."""
    if importlib.util.find_spec("pytest") is None:
        raise bench.Skipped("pytest is not installed: tests/gpu was not run")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        # No plugins: other packages on the machine must not decide how the tests run.
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *BARE_PYTEST, "-m", "gpu", *(["-k", "not sweep"] if quick else []),
             "--basetemp", str(Path(folder, "tests")), "--junitxml", str(report), str(ROOT / "tests" / "gpu")],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if not report.exists():
            return {"problems": ["pytest gave no report"], "log_tail": done.stdout.splitlines()[-25:]}
        rows = [describe_test(case) for case in ElementTree.parse(report).iter("testcase")]
    counts = {status: sum(row["status"] == status for row in rows) for status in ("passed", "failed", "skipped")}
    problems = [f"{row['name']}: {' | '.join(row['message'])}" for row in rows if row["status"] == "failed"]
    if done.returncode and not problems:
        problems = [f"pytest ended with exit code {done.returncode}: {' | '.join(done.stdout.splitlines()[-3:])}"]
    if name.startswith("cuda") and not counts["passed"]:
        problems.append("no test passed, though there is a CUDA device")
    lines = [", ".join(f"{count} {status}" for status, count in counts.items())]
    lines += [f"skipped {row['name']}: {row['message'][-1]}" for row in rows if row["status"] == "skipped"]
    return {"counts": counts, "tests": rows, "lines": lines, "problems": problems}


def describe_test(case: ElementTree.Element) -> dict[str, Any]:
    found = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
    status = "passed" if found is None else "skipped" if found.tag == "skipped" else "failed"
    lines: list[str] = []
    if found is not None:
        text = (found.text or "") if status == "failed" else found.get("message", "")
        lines = [line for line in text.splitlines() if line.strip()][-_MESSAGE_LINES:]
    return {"name": case.get("name"), "status": status, "seconds": float(case.get("time", 0)), "message": lines}


def sweep(name: str, quick: bool) -> dict[str, Any]:
    """Run ``pipetune sweep`` as a user would start it; its whole result is kept."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        done = subprocess.run(
            [sys.executable, "-m", "pipetune", "sweep", "--dataset", "synthetic:caltech256?n=2000", "--model",
             "resnet50", "--device", name, "--batch-size", "64", "--budget", "90s" if quick else "4m",
             "--out", str(Path(folder, "run")), "--json", str(file)],
            cwd=folder, env={**os.environ, "XDG_CACHE_HOME": folder, "PIPETUNE_CACHE_DIR": ""}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        result = json.loads(file.read_text()) if file.exists() else {}
    result.get("host", {}).pop("hostname", None)
    rows = result.get("outcomes", [])
    broken = [(row["key"], row["failure"]) for row in rows if "failure" in row]
    problems = [f"{key} failed: {failure['kind']}: {failure['message']}" for key, failure in broken]
    if done.returncode:
        problems.append(f"exit code {done.returncode}: {' | '.join(done.stdout.splitlines()[-5:])}")
    if not result.get("ceiling_samples_per_s"):
        problems.append(f"no ceiling: {result.get('message')}")
    return {"exit_code": done.returncode, "result": result, "lines": sweep_table(result), "problems": problems}


def sweep_table(result: dict[str, Any]) -> list[str]:
    rows = [
        [row["key"], f"{row['samples_per_s']:.0f}/s", *(percent(row.get(key)) for key in ("goodput", "data_wait_frac")),
         "-" if row["gpu_util_pct"] is None else f"{row['gpu_util_pct']:.0f} %"]
        for row in result.get("outcomes", []) if "failure" not in row
    ]  # fmt: skip
    lines = bench.table(["candidate", "rate", "goodput", "data wait", "GPU busy"], rows).splitlines() if rows else []
    keys = ("status", "ceiling_samples_per_s", "speedup")
    lines += [f"{key}: {result.get(key)}" for key in keys]
    return [*lines, *(f"{key}: {(result.get(key) or {}).get('key')}" for key in ("baseline", "recommended"))]


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
