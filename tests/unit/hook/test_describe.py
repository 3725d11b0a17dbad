from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook.describe import (
    Site,
    batch_size_of,
    class_name,
    expressions_of,
    made_by_framework,
    settings_of,
    site_of,
)

ROOT = Path(__file__).parents[3]


def _source(name: str, arguments: tuple[str, ...]) -> str:
    listed = ", ".join(arguments)
    return f"def {name}(dataset=None, args=None, more={{}}):\n    x = 1\n    return DataLoader(\n        {listed})\n"


def function(package: str, name: str, callee: Any, *arguments: str, file: str = "/nowhere/loop.py") -> Any:
    """A function of a module with this name, whose third line calls ``DataLoader(arguments)``."""
    source = _source(name, arguments)
    scope: dict[str, Any] = {"__name__": package, "DataLoader": callee}
    exec(compile(source, file, "exec"), scope)
    return scope[name]


def site(*_: Any, **__: Any) -> Site | None:
    """Stands in for the constructor: the site of its caller."""
    return site_of(sys._getframe(1))


def again(*_: Any, **__: Any) -> bool:
    return made_by_framework(sys._getframe(1))


def test_the_call_is_found_with_its_place_in_the_function() -> None:
    found = function("train", "build", site, "dataset")()
    assert (found.file, found.function, found.line, found.position) == ("/nowhere/loop.py", "build", 3, (2, 11))


@pytest.mark.parametrize(
    "package", ["torch.utils.data", "lightning.fabric", "accelerate", "ray.train.torch", "functools"]
)
def test_frames_of_frameworks_are_passed_over(package: str) -> None:
    prepare = function(package, "prepare", site)
    assert function("mine.train", "main", prepare)().function == "main"


def test_a_package_whose_name_only_begins_like_a_frameworks_is_the_scripts() -> None:
    assert function("torchlike.data", "build", site)().function == "build"


def test_with_nothing_but_frameworks_there_is_no_site() -> None:
    frame: Any = SimpleNamespace(f_globals={"__name__": "torch"}, f_back=None)
    assert site_of(frame) is site_of(None) is None


@pytest.mark.parametrize(
    ("package", "expected"),
    [("accelerate.data_loader", True), ("pytorch_lightning", True), ("functools", False), ("train", False)],
)
def test_a_framework_that_makes_a_loader_again_is_told_by_the_direct_caller(package: str, expected: bool) -> None:
    assert function(package, "f", again)() is expected
    assert not made_by_framework(None)


def written(tmp_path: Path, *arguments: str) -> dict[str, str]:
    file = tmp_path / "train.py"
    build = function("train", "build", site, *arguments, file=str(file))
    file.write_text(_source("build", arguments), encoding="utf-8")
    return expressions_of(build(None, SimpleNamespace(workers=4)))


def test_arguments_are_told_as_the_call_writes_them(tmp_path: Path) -> None:
    found = written(tmp_path, "dataset", "num_workers = args.workers+1", "shuffle=True", "pin_memory=not more")
    assert found == {"num_workers": "args.workers + 1", "pin_memory": "not more"}


def test_letters_of_several_bytes_before_the_call_do_not_hide_it(tmp_path: Path) -> None:
    assert written(tmp_path, "'äöü' and dataset", "num_workers=4") == {"num_workers": "4"}


def test_arguments_in_a_dictionary_are_not_known(tmp_path: Path) -> None:
    assert written(tmp_path, "dataset", "**more") == {}


@pytest.mark.parametrize("text", [None, "def build(:\n", "x = 1\n" * 9], ids=["gone", "damaged", "edited"])
def test_a_file_that_cannot_be_read_or_was_changed_tells_nothing(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    if text is not None:
        file.write_text(text)
    assert expressions_of(function("train", "build", site, "dataset", "num_workers=4", file=str(file))()) == {}


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from pipetune.hook.describe import site_of
def build():
    return site_of(sys._getframe())
print(build().file)
"""


@pytest.mark.parametrize("written_as", ["train.py", "./train.py", "../job/train.py"])
def test_a_script_is_the_same_file_however_its_path_is_written(written_as: str, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-S", written_as, str(ROOT)], cwd=job, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(job / "train.py")


def test_classes_are_told_with_their_module_unless_it_is_the_script() -> None:
    mine = type("Mine", (), {"__module__": "__main__"})
    other = type("Other", (), {"__module__": "torchvision.datasets.folder"})
    assert class_name(mine()) == "Mine"
    assert class_name(other()) == "torchvision.datasets.folder.Other"
    assert class_name([]) == "list"


def test_settings_are_those_of_the_loader_in_json_types() -> None:
    context = SimpleNamespace(get_start_method=lambda: "spawn")
    loader = SimpleNamespace(
        num_workers=3, prefetch_factor=4, pin_memory=1, persistent_workers=True, in_order=False, batch_size=8,
        multiprocessing_context=context,
    )  # fmt: skip
    assert settings_of(loader) == {
        "num_workers": 3, "prefetch_factor": 4, "pin_memory": True, "persistent_workers": True, "in_order": False,
        "start_method": "spawn", "batch_size": 8,
    }  # fmt: skip


def test_a_loader_without_workers_or_of_an_older_torch_has_the_defaults() -> None:
    loader = SimpleNamespace(num_workers=0, prefetch_factor=2, batch_size=None, batch_sampler=None)
    settings = settings_of(loader)
    assert settings["prefetch_factor"] is None
    assert settings["in_order"] is True
    assert settings["start_method"] in ("fork", "forkserver"), "Python's own"
    assert settings["batch_size"] is None


def test_the_batch_size_is_the_loaders_or_its_batch_samplers() -> None:
    assert batch_size_of(SimpleNamespace(batch_size=16)) == 16
    assert batch_size_of(SimpleNamespace(batch_size=None, batch_sampler=SimpleNamespace(batch_size=4))) == 4
    assert batch_size_of(SimpleNamespace(batch_size=None, batch_sampler=[[1], [2]])) is None
    assert batch_size_of(SimpleNamespace(batch_size="many")) is None
