"""The way into real processes. Their torch is none: see :mod:`tests.unit.hook.fake_torch`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from pipetune.measure.script.protocol import SITE, SOCKET, VARIABLE
from tests.unit.hook.fake_torch import write_package

HELLO = "print('ran')\n"


def run(
    *words: str, cwd: Path, hook: str | None, python_path: tuple[str, ...] = (SITE,), python: str = sys.executable
) -> Any:
    kept = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "LOCAL_RANK")}
    variables = {"PYTHONPATH": os.pathsep.join(python_path), "PYTHONDONTWRITEBYTECODE": "1"}
    if hook is not None:
        variables[VARIABLE] = hook
    return subprocess.run(
        [python, *words], cwd=cwd, env={**kept, **variables}, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip


def profile(folder: Path, **identity: Any) -> str:
    """Value of the variable for a script that has four workers by a profile."""
    who = {
        "file": str(folder / "train.py"), "function": "main", "dataset": "Data", "sampler": "SequentialSampler",
        "ordinal": 0, "position": [1, 4], **identity,
    }  # fmt: skip
    place = folder / "tuned.json"
    place.write_text(json.dumps({"loaders": [{"identity": who, "settings": {"num_workers": 4}}]}))
    return f"tuned:{place}"


SCRIPT = """
from torch.utils.data import DataLoader
class Data:
    def __len__(self): return 3
    def __getitem__(self, index): return index
def main():
    loader = DataLoader(Data())
    print(loader.num_workers, sorted(i for batch in loader for i in batch))
if __name__ == "__main__":
    main()
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with a script and a torch."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    write_package(folder)
    return folder


def test_without_the_variable_nothing_is_imported_and_the_folder_is_off_the_path(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print('pipetune' in sys.modules, *sys.path, sep='\\n')\n")
    done = run("train.py", cwd=tmp_path, hook=None)
    assert done.stderr == ""
    first, *path = done.stdout.split()
    assert first == "False"
    assert SITE not in path


def test_tuned_settings_reach_the_loader_of_an_unmodified_script(job: Path) -> None:
    done = run("train.py", cwd=job, hook=profile(job))
    assert done.stdout == "4 [0, 1, 2]\n"
    assert done.stderr == "pipetune: train.py:7: num_workers 0 -> 4\n"
    assert done.returncode == 0


def test_a_script_whose_loader_is_another_is_left_alone_and_told_so(job: Path) -> None:
    done = run("train.py", cwd=job, hook=profile(job, function="other"))
    assert done.stdout == "0 [0, 1, 2]\n"
    assert done.stderr.startswith("pipetune: nothing was changed")


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("tuned:/dev/null", "cannot enter this process: JSONDecodeError"),
        ("other:/x", "cannot enter this process"),
        ("nothing", "cannot enter this process"),
        ("tuned:/not/there.json", "this process trains with its own settings: /not/there.json is gone"),
    ],
)
def test_whatever_is_wrong_with_us_the_script_runs(hook: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HELLO)
    done = run("train.py", cwd=tmp_path, hook=hook)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.startswith(f"pipetune: {said}")


def test_a_profile_for_an_older_torch_or_other_cores_is_not_applied(job: Path) -> None:
    hook = profile(job)
    place = job / "tuned.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"checks": {"torch": "0.1"}}))
    done = run("train.py", cwd=job, hook=hook)
    assert done.stdout == "0 [0, 1, 2]\n"
    assert "torch 0.1" in done.stderr


HIDDEN = "import sys\nsys.hidden = __file__\n"
ASKS = "import sys, sitecustomize; print(sys.hidden); print(sitecustomize.__file__)\n"


@pytest.mark.parametrize("hook", [None, "tuned:/dev/null"], ids=["idle", "failing"])
def test_a_sitecustomize_of_the_users_is_imported_in_its_place(hook: str | None, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text(HIDDEN)
    (tmp_path / "train.py").write_text(ASKS)
    done = run("train.py", cwd=tmp_path, hook=hook, python_path=(SITE, str(theirs)))
    assert done.stdout.split() == [str(theirs / "sitecustomize.py")] * 2


def test_one_of_the_users_that_fails_is_told_as_python_does(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    (tmp_path / "train.py").write_text(HELLO)
    alone = run("train.py", cwd=tmp_path, hook=None, python_path=(str(theirs),))
    hooked = run("train.py", cwd=tmp_path, hook=None, python_path=(SITE, str(theirs)))
    assert hooked.stdout == "ran\n"
    assert hooked.returncode == alone.returncode
    assert "theirs" in hooked.stderr


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python without packages, none of whose files has imported anything when the hook comes."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


#: Standard modules: what the hook imports, and some that Python itself has imported by then.
OWN = ("statistics", "socket", "json", "dataclasses", "fnmatch", "pathlib", "ast", "linecache", "random")


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("how", ["beside", "in a package", "beside, with -c of its own", "beside, bare"])
def test_a_script_with_a_module_of_a_standard_name_gets_its_own(name: str, how: str, bare: str, tmp_path: Path) -> None:
    """As it would without us."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / f"{name}.py").write_text("OWN = True\n")
    (folder / "train.py").write_text(f"import {name}; print(getattr({name}, 'OWN', False))\n")
    python = bare if how == "beside, bare" else sys.executable
    words = {
        "beside": ["tools/train.py"],
        "beside, bare": ["tools/train.py"],
        "in a package": ["-m", "tools.train"],
    }.get(how, ["tools/train.py", "-c", "config.yaml"])
    hook = profile(tmp_path)
    alone = run(*words, cwd=tmp_path, hook=None, python_path=(), python=python)
    assert run(*words, cwd=tmp_path, hook=hook, python=python).stdout == alone.stdout


SPAWNS = """
import multiprocessing
from train import main
def work():
    pass
if __name__ == "__main__":
    main()
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
"""


def test_processes_that_the_script_starts_say_nothing_of_their_own(job: Path) -> None:
    (job / "start.py").write_text(SPAWNS)
    done = run("start.py", cwd=job, hook=profile(job, dataset="train.Data"))
    assert done.stdout == "4 [0, 1, 2]\n"
    assert done.stderr == "pipetune: train.py:7: num_workers 0 -> 4\n"


def connected(folder: Path, *words: str, cwd: Path, python_path: tuple[str, ...] = (SITE,)) -> list[dict[str, Any]]:
    """What a process that is measured says until it ends, without being asked for anything."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / SOCKET))
        listener.listen(8)
        done = run(*words, cwd=cwd, hook=f"relay:{folder}", python_path=python_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "ran\n"
        listener.settimeout(30)
        channel, _ = listener.accept()
        with channel, channel.makefile("rb") as file:
            return [json.loads(line) for line in file]


def test_a_process_that_is_measured_says_hello_and_what_it_imports(job: Path) -> None:
    (job / "train.py").write_text("import torch.utils.data\n" + HELLO)
    messages = connected(job, "train.py", "--epochs", "3", cwd=job)
    assert [message["type"] for message in messages] == ["hello", "started", "torch"]
    assert messages[0]["argv"][1:] == ["train.py", "--epochs", "3"]


@pytest.mark.parametrize("name", ["statistics", "socket", "weakref"])
def test_one_that_is_measured_gets_its_own_modules_too(name: str, job: Path) -> None:
    (job / f"{name}.py").write_text("OWN = True\n")
    (job / "train.py").write_text(f"import {name}; assert {name}.OWN\n{HELLO}")
    assert [message["type"] for message in connected(job, "train.py", cwd=job)] == ["hello", "started"]


def test_a_python_that_is_too_old_says_so_and_runs_the_script(tmp_path: Path) -> None:
    site = tmp_path / "pipetune" / "hook" / "site"
    site.mkdir(parents=True)
    source = Path(SITE, "sitecustomize.py").read_text()
    assert "(3, 11)" in source
    (site / "sitecustomize.py").write_text(source.replace("(3, 11)", "(99, 0)"))
    (tmp_path / "train.py").write_text(HELLO)
    (message,) = connected(tmp_path, "train.py", cwd=tmp_path, python_path=(str(site),))
    assert message["type"] == "too_old"
    assert message["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_the_file_is_written_for_pythons_that_are_older() -> None:
    import ast

    ast.parse(Path(SITE, "sitecustomize.py").read_text(), feature_version=(3, 4))
