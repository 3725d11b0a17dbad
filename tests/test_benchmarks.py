"""The benchmarks themselves: each states a promise and answers ``--help``; none uses private names; results exist."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import __main__ as runner
from benchmarks import bench
from benchmarks.catalogue import BENCHMARKS, FOLDER, Benchmark

ROOT = FOLDER.parent
SOURCES = sorted(FOLDER.rglob("*.py"))
#: A program that measures data for another benchmark and makes no promise.
DATA = "search/search_grids.py"
STARTED_BY_OTHERS = {
    "__main__.py", "gpu/nvml_recorder.py", "loaders/child.py", "measuring/one_process.py", "overhead/watched_job.py",
    "robustness/forced_ends.py", "robustness/writing_job.py", "watch/jobs.py",
}  # fmt: skip
PROGRAMS = [*(benchmark.path for benchmark in BENCHMARKS), DATA]

_HELP = """
import contextlib, io, json, runpy, sys
answers = {}
for program in sys.argv[1:]:
    sys.argv = [program, "--help"]
    printed, code = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as ended:
            code = ended.code
    answers[program] = [code, printed.getvalue(), "torch" in sys.modules]
print(json.dumps(answers))
"""
_IMPORTS = re.compile(r"^from ((?:pipetune|benchmarks)[\w.]*) import ([\w, ]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[int, str, bool]]:
    """Program -> exit code and text of its ``--help``, and whether torch was imported by then."""
    command = [sys.executable, "-c", _HELP, *(str(FOLDER / program) for program in PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=bench.environment())
    found = json.loads(done.stdout)
    return {program: tuple(found[str(FOLDER / program)]) for program in PROGRAMS}


def test_catalogue_is_complete() -> None:
    programs = {str(path.relative_to(FOLDER)) for path in SOURCES if 'if __name__ == "__main__":' in path.read_text()}
    stages = {program for program in programs if program.startswith("gpu/")}  # started by gpu/lease.sh
    assert programs - STARTED_BY_OTHERS - stages == set(PROGRAMS)


def test_names_are_unique() -> None:
    assert len({benchmark.name for benchmark in BENCHMARKS}) == len(BENCHMARKS)


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_promise_is_one_line(benchmark: Benchmark) -> None:
    assert 40 <= len(benchmark.promise) <= 125
    assert "\n" not in benchmark.promise


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_without_torch(program: str, answers: dict[str, tuple[int, str, bool]]) -> None:
    code, text, torch = answers[program]
    assert code == 0
    assert "--quick" in text
    assert "--json" in text
    assert not torch


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_private_names(path: Path) -> None:
    assert private_names(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from pipetune.search import _probe", ["_probe"]),
        ("from pipetune._search import probe", ["_search"]),
        ("import pipetune._search", ["_search"]),
        ("import pipetune.search as s\ns._probe()", ["_probe"]),
        ("from pipetune import search\nsearch._probe()", ["_probe"]),
        ("import pipetune\npipetune.search._probe()", ["_probe"]),
        ("from pipetune.sampler import tree\ntree.TICK_S = 1", ["TICK_S ="]),
        ("P = 'from pipetune.search import _probe'", ["_probe"]),
        ("from pipetune.search import probe\nprobe()\nself._x = 1", []),
    ],
)
def test_finds_private_names(source: str, found: list[str]) -> None:
    assert private_names(source) == found


def private_names(source: str) -> list[str]:
    """Private names of the package that a program uses, and names of its modules that it replaces."""
    tree, found = ast.parse(source), []
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pipetune":
            found += private(f"{node.module}.{alias.name}" for alias in node.names)
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.split(".")[0] == "pipetune"]
            found += private(alias.name for alias in ours)
            imported |= {alias.asname or "pipetune" for alias in ours}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += re.findall(r"from pipetune[\w.]* import (_\w+)", node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and root_of(node) in imported:
            if node.attr.startswith("_"):
                found.append(node.attr)
            elif isinstance(node.ctx, ast.Store):
                found.append(f"{node.attr} =")
    return found


def test_embedded_programs_import_what_exists() -> None:
    """mypy does not see inside of strings."""
    found = []
    for path in SOURCES:
        strings = [n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)]
        for module, names in _IMPORTS.findall("\n".join(text for text in strings if isinstance(text, str))):
            found += [(module, name) for name in names.split(", ")]
    assert {module for module, _ in found} >= {"pipetune.datasets.folder", "pipetune.processes.parent_death"}
    assert [(module, name) for module, name in found if not hasattr(importlib.import_module(module), name)] == []


def private(names: object) -> list[str]:
    parts = [part for name in names for part in name.split(".")]  # type: ignore[attr-defined]
    return [part for part in parts if part.startswith("_") and not part.startswith("__")]


def root_of(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def test_named_files_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("notebooks/*")]
    pages += [*(ROOT / "pipetune").rglob("*.py"), *SOURCES]
    named = {name for page in pages if page.is_file() for name in benchmarks_named_in(page.read_text())}
    assert len(named) > 10
    # Two rooms of the package have names of folders here.
    assert {name for name in named if not list(FOLDER.glob(name)) and not (ROOT / "pipetune" / name).exists()} == set()


def benchmarks_named_in(text: str) -> list[str]:
    """Files below benchmarks/, and those that a table names without it: ``overhead/startup.py``."""
    folders = "|".join(path.name for path in FOLDER.iterdir() if path.is_dir() and path.name[0].isalpha())
    return re.findall(r"\bbenchmarks/([\w./*-]*\w)", text) + re.findall(rf"`((?:{folders})/[a-z_]+\.py)`", text)


def test_results_name_their_benchmark() -> None:
    for file in bench.RESULTS.glob("*.json"):
        assert file.name.startswith(json.loads(file.read_text())["benchmark"]), file.name


@pytest.mark.parametrize(
    ("text", "promise"),
    [
        ("Title?\n\nPromise: `x --help` answers in\nunder 0.25 s.\n\nMore.", "`x --help` answers in under 0.25 s"),
        ("Title?\n\nPromise: it holds. Always.", "it holds"),
        ("Title?\n\nPromise: it holds", "it holds"),
        ("Title? Promise: it holds.", ""),
        ("", ""),
    ],
)
def test_promise_of(text: str, promise: str) -> None:
    assert bench.promise_of(text) == promise


def test_table() -> None:
    assert bench.table(["a", "b", "c"], [["x", "1", "y"], ["long", "22", "z"]], left=(0, 2)) == (
        "a      b  c\n----  --  -\nx      1  y\nlong  22  z"
    )


def test_bootstrap_interval() -> None:
    low, high = bench.bootstrap_ci95([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.2])
    assert 0.9 <= low <= 1.0 <= high <= 1.2
    assert bench.bootstrap_ci95([2.0]) == (2.0, 2.0)
    assert bench.ratio_text([1.0, 2.0, 3.0]) == "2.00 (1.00 to 3.00)"


def test_last_line() -> None:
    assert bench.last_line_of([sys.executable, "-c", "print('log'); print('{\"a\": 1}')"]) == {"a": 1}


@pytest.mark.parametrize(
    ("program", "message"),
    [("raise SystemExit('broken')", "broken"), ("raise SystemExit(3)", "exit code 3"), ("pass", "exit code 0"),
     ("import time; time.sleep(60)", "no result in 1 s")],
)  # fmt: skip
def test_no_last_line(program: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        bench.last_line_of([sys.executable, "-c", program], timeout_s=1)


_BENCHMARK = '''"""Is it so?\n\nPromise: it is so on this machine and on every other one.\n"""
import os, subprocess, sys, time
from benchmarks import bench

def main(options):
    kind = os.environ["KIND"]
    if kind == "skipped":
        raise bench.Skipped("no such device")
    if kind == "crash":
        raise ValueError("a bug")
    if kind == "signal":
        os.kill(os.getpid(), 9)
    if kind == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(child.pid, flush=True)
        time.sleep(600)
    return bench.Result(kind == "holds", {"quick": options.quick})

bench.run(main, __file__, __doc__)
'''


def written(folder: Path, limit_s: float) -> Benchmark:
    """A benchmark that ends as the variable KIND says."""
    path = folder / "so.py"
    path.write_text(_BENCHMARK)
    return Benchmark(str(path), limit_s, 60)


@pytest.mark.parametrize(
    ("kind", "outcome", "code", "reason"),
    [
        ("holds", runner.HOLDS, 0, ""),
        ("missed", runner.MISSED, 1, ""),
        ("skipped", runner.SKIPPED, 2, "no such device"),
        ("crash", runner.FAILED, 1, "exit code 1: ValueError: a bug"),
        ("signal", runner.FAILED, -9, "SIGKILL"),
    ],
)
def test_run(
    kind: str, outcome: str, code: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("KIND", kind)
    found = runner.run(written(tmp_path, limit_s=60), quick=True)
    assert (found.outcome, found.exit_code, found.reason) == (outcome, code, reason)
    assert found.promise == "it is so on this machine and on every other one"
    assert runner.passed([found]) is (kind in ("holds", "skipped"))


def test_run_past_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIND", "hang")
    found = runner.run(written(tmp_path, limit_s=3), quick=True)
    assert (found.outcome, found.exit_code, found.reason) == (runner.FAILED, None, "not done after 3 s")
    assert ends_soon(int(found.output.split()[0]))


def ends_soon(pid: int) -> bool:
    """A process that was killed may take a moment to end, and stays a zombie until its new parent waits for it."""
    for _ in range(100):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.1)
    return False


def test_choose() -> None:
    assert runner.choose(None) == (list(BENCHMARKS), "")
    chosen, problem = runner.choose(["startup", "robustness/"])
    names = ["startup", "formats", "fuzz", "writes", "leaks", "resume"]
    assert ([benchmark.name for benchmark in chosen], problem) == (names, "")
    assert [benchmark.name for benchmark in runner.choose(["loaders"])[0]] == ["loaders"]
    assert runner.choose(["startip"]) == ([], "no benchmark or folder 'startip'; did you mean startup?")


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--only", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert all(benchmark.promise in printed for benchmark in BENCHMARKS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_option_that_a_benchmark_reads_can_be_given(
    program: str, answers: dict[str, tuple[int, str, bool]]
) -> None:
    text = (FOLDER / program).read_text()
    read = set(re.findall(r"\boptions\.(\w+)", text)) - {"quick", "json"}
    offered = set(re.findall(r"^  --([\w-]+)", answers[program][1], re.MULTILINE))
    assert {name.replace("_", "-") for name in read} <= offered
