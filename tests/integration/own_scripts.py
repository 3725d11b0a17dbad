"""Starts sweeps of training scripts that know nothing of pipetune."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration import commands

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
#: A step that one worker keeps up with, so that few candidates are measured.
EASY = ("--step-ms", "30")


def sweep(place: Path, command: list[str], *options: str, seconds: str = "1") -> subprocess.CompletedProcess[str]:
    words = [*commands.python(), "sweep", "--seconds", seconds, "--progress", "lines", *options, "--out", "run", "--"]
    return subprocess.run(
        [*words, *command], cwd=place, env=dict(os.environ), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False, timeout=290,
    )  # fmt: skip


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(SCRIPTS / script), *arguments]


def result_of(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "run" / "result.json").read_text())
    return found


def files_in(place: Path) -> list[str]:
    return sorted(
        str(path.relative_to(place)) for path in place.rglob("*") if "run" not in path.relative_to(place).parts
    )


def write(place: Path, text: str) -> list[str]:
    """A script in a folder of its own, because ``python -m pipetune`` imports from the current one."""
    (place / "src").mkdir(exist_ok=True)
    (place / "src" / "train.py").write_text(text)
    return [sys.executable, "src/train.py"]


TRAINING = """
import torch
from torch.utils.data import DataLoader, TensorDataset
{before}
data = TensorDataset(torch.randn(256, 8), torch.zeros(256, dtype=torch.long))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
{loop}
"""
LOOP = """
for epoch in range(1000):
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        time.sleep(0.01)
"""
