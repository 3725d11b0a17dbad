"""What the layout promises and a linter of imports cannot see."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pipetune
from pipetune.registry import BACKENDS, LOADERS

ROOT = Path(pipetune.__file__).parent
#: Lines of a file, tests and benchmarks included.
MAX_LINES = 350
HEAVY = ("torch", "torchvision", "numpy", "pandas", "PIL", "cv2", "pynvml", "psutil", "nvidia", "matplotlib", "rich")


def imported_by(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*[n for n in {HEAVY!r} if n in sys.modules])"
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(asked.stdout.split("\n")[-2].split())


@pytest.mark.parametrize(
    "code",
    [
        "import pipetune",
        "import pipetune.sweeping.loop, pipetune.search, pipetune.diagnosis.candidate, pipetune.store.folder",
        "import pipetune.machine.host",
        "import pipetune.measure.harness",
        "import pipetune.sweeping.result, pipetune.report.code",
        "sys.argv = ['pipetune', '--help']\nfrom pipetune.__main__ import main\ntry: main()\nexcept SystemExit: pass",
        "sys.argv = ['pipetune', 'sweep', '--help']\nfrom pipetune.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code: str) -> None:
    assert imported_by(code) == set()


def test_files_stay_small() -> None:
    repository = ROOT.parent
    files = [
        path for folder in ("pipetune", "tests", "benchmarks", "docs") for path in (repository / folder).rglob("*.py")
    ]
    line_counts = {str(path.relative_to(repository)): len(path.read_text().splitlines()) for path in files}
    assert {path: lines for path, lines in line_counts.items() if lines > MAX_LINES} == {}


def test_every_backend_of_the_registry_is_a_module() -> None:
    for named in (*BACKENDS.values(), *LOADERS.values()):
        assert named.module is None or importlib.util.find_spec(named.module), named.module


def test_versions_agree() -> None:
    done = subprocess.run([sys.executable, "-m", "pipetune", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"pipetune {pipetune.__version__}\n"


#: What runs in a child, or in the user's own process, which may fork: it has no GPU open through NVML.
MAY_FORK = {"child", "loaders", "decoders", "accelerator", "hook", "usercode", "training"}


def test_the_process_that_holds_gpus_open_never_forks() -> None:
    forking = re.compile(r"os\.fork(pty)?\(|^\s*(import|from) multiprocessing|ProcessPool", re.MULTILINE)
    files = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in MAY_FORK]
    assert [str(path) for path in files if forking.search(path.read_text())] == []
    assert forking.search((ROOT / "child" / "fork_server.py").read_text())
