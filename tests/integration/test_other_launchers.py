"""What the manual shows of submitit and ReFrame, as it stands, each from an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pipetune
from tests import ROOT
from tests.reader_environments import python_with

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MANUAL = (ROOT / "docs/guides/cluster.md").read_text()
SMALL = ("--device", "emulated:50", "--batch-size", "8", "--backends", "pillow", "--effort", "quick", "--seconds", "1")


def shown(word: str) -> str:
    """The block of Python in the manual that has this word in it."""
    (found,) = [block for block in re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL) if word in block]
    return str(found)


def test_submitit_as_the_manual_shows_it(tmp_path: Path) -> None:
    python = Path(python_with("submitit", "submitit==1.5.4", imports="submitit"))
    (packages,) = (python.parents[1] / "lib").glob("python*/site-packages")
    code = shown("import submitit")
    for before, after in (
        ('AutoExecutor("/shared/logs")', f'AutoExecutor("{tmp_path}/logs", cluster="local")'),
        ("/shared/runs", str(tmp_path)), ('"/shared/imagenet/train"', '"synthetic:caltech256?n=60"'),
        ("(1, 2, 4, 8)", "(1, 2)"),
        ("progress=False", 'progress=False, device="emulated:50", batch_size=8, backends=["pillow"], seconds=1'),
    ):  # fmt: skip
        assert before in code
        code = code.replace(before, after)
    code += "\nprint([run.result['status'] for run in runs])\n"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": f"{ROOT}:{packages}"}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "target_met" in done.stdout
    assert len(pipetune.load(tmp_path / "ranks-2").outcomes) >= 2


def test_reframe_as_the_manual_shows_it(tmp_path: Path) -> None:
    python = Path(python_with("reframe", "reframe-hpc==4.10.4", imports="reframe"))
    code = shown("import reframe")
    for before, after in (
        ('"/shared/imagenet/train"', '"synthetic:caltech256?n=60"'), ('"--ranks", "auto"', str(SMALL)[1:-1]),
    ):  # fmt: skip
        assert before in code
        code = code.replace(before, after)
    check = tmp_path / "input_pipeline.py"
    check.write_text(code)
    command = [str(python.with_name("reframe")), "-c", str(check), "-r", "--performance-report"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "RFM_PREFIX": str(tmp_path)}
    report = tmp_path / "report.json"
    done = subprocess.run(
        [*command, f"--report-file={report}"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout
    assert "goodput" in report.read_text()
    assert json.loads(report.read_text())
    check.write_text(code.replace("(1.0, -0.1, None", "(2.0, -0.1, None"))
    failed = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "performance error" in failed.stdout
