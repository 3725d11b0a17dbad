from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pipetune.hook import enter as module
from pipetune.hook.enter import enter, forget_shadowed, script_places


def places(monkeypatch: pytest.MonkeyPatch, *words: str, safe_path: bool = False, python_path: str = "") -> list[str]:
    """The places of a process that was started with these words after ``python``."""
    after = [word for number, word in enumerate(words) if not _is_option(words, number)]
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    monkeypatch.setattr(sys, "argv", _argv(words, after))
    monkeypatch.setattr(sys, "flags", SimpleNamespace(safe_path=safe_path))
    monkeypatch.setenv("PYTHONPATH", python_path)
    return list(script_places())


def _is_option(words: tuple[str, ...], number: int) -> bool:
    return words[number].startswith("-") or (number > 0 and words[number - 1] in ("-W", "-X"))


def _argv(words: tuple[str, ...], after: list[str]) -> list[str]:
    """``sys.argv`` at the time of ``sitecustomize``."""
    first = after[0] if after else ""
    for option in ("-c", "-m"):
        if option in words and words.index(option) < words.index(first):
            return [option, *after[1:]]
    return [first, *words[words.index(first) + 1 :]] if after else [""]


@pytest.mark.parametrize(
    "words",
    [
        ("/job/train.py",), ("-u", "/job/train.py", "8"), ("/job/train.py", "-m", "resnet50"),
        ("/job/train.py", "-c", "config.yaml"), ("-W", "ignore", "/job/train.py"), ("-X", "dev", "/job/train.py"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_script_finds_modules_in_its_own_folder(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(monkeypatch, *words) == ["/job"]


@pytest.mark.parametrize("words", [("-m", "pkg.train"), ("-c", "import x"), ()], ids=["a module", "code", "input"])
def test_a_module_or_code_finds_them_in_the_working_folder(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert places(monkeypatch, *words) == [str(tmp_path)]


def test_a_link_to_a_script_stands_for_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "train.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "train.py")
    assert places(monkeypatch, str(tmp_path / "link.py")) == [str(tmp_path / "real")]


def test_places_of_the_environment_come_after_and_alone_where_paths_are_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(monkeypatch, "/job/train.py", python_path="/a::/b") == ["/job", "/a", "/b"]
    assert places(monkeypatch, "/job/train.py", safe_path=True, python_path="/a") == ["/a"]


@pytest.mark.parametrize("kind", ["a file", "a package"])
def test_modules_of_a_name_that_the_script_has_are_forgotten(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine_too", "mine_too.part", "not_mine"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    if kind == "a file":
        (tmp_path / "mine_too.py").touch()
    else:
        (tmp_path / "mine_too").mkdir()
    forget_shadowed({"mine_too", "mine_too.part", "not_mine"}, [str(tmp_path / "nothing"), str(tmp_path)])
    assert "mine_too" not in sys.modules
    assert "mine_too.part" not in sys.modules
    assert "not_mine" in sys.modules


def test_pipetune_itself_stays(tmp_path: Path) -> None:
    (tmp_path / "pipetune").mkdir()
    forget_shadowed({"pipetune", "pipetune.hook.enter"}, [str(tmp_path)])
    assert sys.modules["pipetune.hook.enter"] is module


def test_the_guest_is_told_the_place_and_the_import_path_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    seen: list[list[str]] = []

    def import_module(name: str) -> object:
        seen.append(list(sys.path))
        return SimpleNamespace(enter=told.append)

    monkeypatch.setattr(module.importlib, "import_module", import_module)
    monkeypatch.setattr(sys, "path", ["/job", *sys.path])
    before = list(sys.path)
    enter("tuned:/run:1/tuned.json", set(sys.modules))
    assert told == ["/run:1/tuned.json"]
    assert sys.path == before
    assert os.path.dirname(os.__file__) in seen[0]
    assert "/job" not in seen[0]
    assert not any("site-packages" in entry for entry in seen[0])


def test_the_import_path_stays_also_where_an_import_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(module.importlib, "import_module", import_module)
    before = list(sys.path)
    with pytest.raises(ImportError):
        enter("relay:/folder", set(sys.modules))
    assert sys.path == before


def test_an_unknown_kind_is_an_error_and_leaves_the_import_path() -> None:
    before = list(sys.path)
    with pytest.raises(KeyError):
        enter("other:/folder", set(sys.modules))
    assert sys.path == before
