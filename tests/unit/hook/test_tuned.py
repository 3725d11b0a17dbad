from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook import tuned
from pipetune.hook.profile import Profile, Tuned
from pipetune.hook.seams import STATEFUL
from pipetune.records.script import LoaderIdentity
from tests.unit.hook.fake_torch import Numbers, loader_module

TAG = sys.implementation.cache_tag
NUMBERS = "tests.unit.hook.fake_torch.Numbers"


class Script:
    """A script with our guest in it."""

    def __init__(
        self, settings: dict[str, Any], checks: dict[str, Any] | None = None, pil: dict[str, str] | None = None,
        **identity: Any,
    ) -> None:  # fmt: skip
        who = {
            "file": __file__, "function": "Script.train", "dataset": NUMBERS, "sampler": "RandomSampler", "ordinal": 0,
            "position": (1, 15), **identity,
        }  # fmt: skip
        profile = Profile((Tuned(LoaderIdentity(**who), settings, False),), checks or {}, pil)
        self.guest = tuned._Guest(profile)
        self.module = loader_module()
        self.guest.on_module(self.module)

    def train(self, **options: Any) -> Any:
        return self.module.DataLoader(Numbers(9), shuffle=True, **options)

    def validate(self, **options: Any) -> Any:
        return self.module.DataLoader(Numbers(9), shuffle=True, **options)


@pytest.fixture(autouse=True)
def at_exit(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    registered: list[Any] = []
    monkeypatch.setattr(tuned, "atexit", SimpleNamespace(register=registered.append))
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="9.9+cpu"))  # type: ignore[arg-type]
    return registered


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_the_loader_gets_its_settings_and_one_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script({"num_workers": 4, "prefetch_factor": 3, "pin_memory": False})
    loader = script.train(num_workers=1, persistent_workers=True)
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (4, 3, True)
    (line,) = lines(capsys)
    assert line.startswith(f"pipetune: {os.path.relpath(__file__)}:")
    assert line.endswith(": num_workers 1 -> 4, prefetch_factor 2 -> 3")


@pytest.mark.parametrize("worker", [False, True])
def test_a_process_that_starts_when_the_run_folder_is_gone_says_so_unless_it_is_a_worker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, worker: bool
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "--multiprocessing-fork"] if worker else ["python", "train.py"])
    tuned.enter(str(tmp_path / "profile.json"))
    assert lines(capsys) == (
        [] if worker else [f"pipetune: this process trains with its own settings: {tmp_path / 'profile.json'} is gone"]
    )


@pytest.mark.parametrize(
    ("checks", "tag", "imported", "expected"),
    [
        ({}, TAG, "/side/PIL/__init__.py", ": num_workers 1 -> 4, Pillow-SIMD 12.1.1.post0"),
        ({}, TAG, "/usr/PIL/__init__.py", "without Pillow-SIMD: the script imports another PIL"),
        ({}, TAG, None, "without Pillow-SIMD: PIL is not imported yet"),
        ({}, "cpython-39", "/usr/PIL/__init__.py", "without Pillow-SIMD: it was built for cpython-39"),
        ({"refused": "other cores"}, TAG, "/usr/PIL/__init__.py", "left as it is: other cores"),
    ],
)  # fmt: skip
def test_another_pil_is_used_and_told(
    checks: dict[str, Any], tag: str, imported: str | None, expected: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "path", ["/job"])
    monkeypatch.delitem(sys.modules, "PIL", raising=False)
    if imported is not None:
        package = SimpleNamespace(__file__=imported, __version__="12.1.1.post0")
        monkeypatch.setitem(sys.modules, "PIL", package)  # type: ignore[arg-type]
    script = Script({"num_workers": 4}, checks, {"folder": "/side", "tag": tag})
    script.train(num_workers=1)
    (line,) = lines(capsys)
    assert line.endswith(expected) or expected in line
    assert (sys.path[0] == "/side") == (not checks and tag != "cpython-39")


def test_another_loader_keeps_its_own_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script({"num_workers": 4})
    assert script.validate(num_workers=1).num_workers == 1
    assert lines(capsys) == []


def test_nothing_stands_between_the_loader_and_its_loop() -> None:
    script = Script({"num_workers": 4})
    plain = loader_module().DataLoader
    loader = script.train()
    assert type(iter(loader)) is script.module._BaseDataLoaderIter
    assert script.module.DataLoader._get_iterator.__code__ is not None
    assert not hasattr(script.module.DataLoader._get_iterator, "__wrapped__")
    assert set(vars(loader)) == set(vars(plain(Numbers(9))))


def collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_garbage_is_collected_once_before_workers_start_and_not_in_each_of_them() -> None:
    alone, several = Script({"num_workers": 0}), Script({"num_workers": 2})
    gc.disable()
    try:
        before = collections()
        alone.train(num_workers=1)
        several.validate(num_workers=2)  # none of the profile's
        untouched = collections()
        several.train(num_workers=1)
        once = collections()
        several.train(num_workers=1)
    finally:
        gc.enable()
    assert (untouched, once, collections()) == (before, before + 1, before + 1)


def test_a_script_that_gets_its_settings_imports_nothing_that_measures(tmp_path: Path) -> None:
    (tmp_path / "tuned.json").write_text('{"loaders": []}')
    code = "import sys; print([name for name in sys.modules if name.startswith(('pipetune.measure.w', 'pipetune.s'))])"
    environment = {
        "PYTHONPATH": str(Path(tuned.__file__).parent / "site"),
        "PIPETUNE_HOOK": f"tuned:{tmp_path / 'tuned.json'}",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_settings_that_it_has_already_are_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    Script({"num_workers": 2, "pin_memory": True}).train(num_workers=2, pin_memory=True)
    (line,) = lines(capsys)
    assert "->" not in line


def test_to_no_workers_everything_goes_that_needs_some() -> None:
    loader = Script({"num_workers": 0, "prefetch_factor": None}).train(
        num_workers=2, prefetch_factor=4, persistent_workers=True
    )
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (0, None, False)


@pytest.mark.parametrize(
    ("checks", "applied"),
    [
        ({}, True),
        ({"torch": "9.9+cpu"}, True),
        ({"torch": "9.8"}, False),
        ({"torch": None, "cores": None}, True),
        ({"cores": len(os.sched_getaffinity(0))}, True),
        ({"cores": len(os.sched_getaffinity(0)) + 1}, False),
        ({"refused": "another machine"}, False),
    ],
    ids=str,
)
def test_where_it_was_measured_with_something_else_it_is_left_as_it_is(
    checks: dict[str, Any], applied: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Script({"num_workers": 4}, checks).train(num_workers=1).num_workers == (4 if applied else 1)
    (line,) = lines(capsys)
    assert ("left as it is" in line) is not applied


def test_cores_that_a_library_has_taken_away_since_the_start_are_no_other_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sweep had the same start, and its workers the same trouble."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    script = Script({"num_workers": 4}, {"cores": 4})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert script.train(num_workers=1).num_workers == 4


def test_the_same_line_is_said_once_and_by_the_first_rank_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script({"num_workers": 4}, {"refused": "another machine"})
    script.train()
    script.train()
    assert len(lines(capsys)) == 1
    monkeypatch.setenv("LOCAL_RANK", "1")
    Script({"num_workers": 4}).train()
    assert lines(capsys) == []


def test_a_closed_standard_error_does_not_stop_the_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = (tmp_path / "err").open("w")
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    assert Script({"num_workers": 4}).train().num_workers == 4
    monkeypatch.setattr(sys, "stderr", None)
    assert Script({"num_workers": 4}).train().num_workers == 4


def test_at_the_end_a_script_whose_loader_never_came_is_told(
    at_exit: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script({"num_workers": 4})
    script.validate()
    at_exit[-1]()
    (line,) = lines(capsys)
    assert line.startswith("pipetune: nothing was changed: none of 1 loaders")
    script.train()
    lines(capsys)
    at_exit[-1]()
    assert lines(capsys) == []


def test_a_guest_that_fails_leaves_the_loader_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script({"num_workers": "four"})
    assert script.train(num_workers=1).num_workers == 1
    (line,) = lines(capsys)
    assert "left as it is" in line


def test_a_loader_that_resumes_a_state_gets_its_own_workers_back(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script({"num_workers": 4, "prefetch_factor": 8})
    loaded: list[Any] = []

    class StatefulDataLoader(script.module.DataLoader):  # type: ignore[misc,name-defined]
        def load_state_dict(self, state: Any) -> None:
            loaded.append((self.num_workers, self.prefetch_factor, state))

    module = SimpleNamespace(__name__=STATEFUL, StatefulDataLoader=StatefulDataLoader)
    script.guest.on_module(module)  # type: ignore[arg-type]
    script.module.DataLoader = StatefulDataLoader
    loader = script.train(num_workers=1)
    assert loader.num_workers == 4
    lines(capsys)
    empty, of_tuned = {}, {"_snapshot": {"_main_snapshot": {"_num_workers": 4}}}
    of_script = {"_snapshot": {"_main_snapshot": {"_num_workers": 1}}}
    for state in (empty, of_tuned):  # of a run with what was found, say
        loader.load_state_dict(state)
        assert loaded.pop() == (4, 8, state)
    assert lines(capsys) == []
    loader.load_state_dict(of_script)
    assert loaded == [(1, 2, of_script)]
    (line,) = lines(capsys)
    assert "left as it is" in line
    script.validate(num_workers=3).load_state_dict("another")
    assert loaded[1:] == [(3, 2, "another")]


@pytest.mark.parametrize(
    ("ranks", "here", "changed"), [(2, "2", True), (2, "8", False), (1, "8", False), (2, "", True)]
)
def test_with_another_number_of_ranks_it_is_left_as_it_is(
    ranks: int, here: str, changed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
    script = Script({"num_workers": 4}, {"ranks": ranks})
    assert (script.train(num_workers=1).num_workers == 4) is changed
    (line,) = lines(capsys)
    assert changed or f"measured with {ranks} rank{'s' * (ranks > 1)} on this host, and 8 train now" in line


def test_with_a_state_everything_is_as_the_script_has_it() -> None:
    script = Script({"num_workers": 0, "prefetch_factor": None, "pin_memory": True, "in_order": False})

    class StatefulDataLoader(script.module.DataLoader):  # type: ignore[misc,name-defined]
        def load_state_dict(self, state: Any) -> None:
            """Nothing."""

    script.guest.on_module(SimpleNamespace(__name__=STATEFUL, StatefulDataLoader=StatefulDataLoader))  # type: ignore[arg-type]
    script.module.DataLoader = StatefulDataLoader
    loader = script.train(num_workers=4, persistent_workers=True, prefetch_factor=8, multiprocessing_context="spawn")
    assert (loader.num_workers, loader.persistent_workers, loader.pin_memory) == (0, False, True)
    loader.load_state_dict({"_snapshot": {"_main_snapshot": {"_num_workers": 4}}})
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (4, 8, True)
    assert (loader.pin_memory, loader.in_order, loader.multiprocessing_context) == (False, True, "spawn")


def test_a_loader_with_states_that_is_made_without_torchs_constructor_gets_its_settings_too() -> None:
    """As torchdata's, which sets all attributes itself."""
    script = Script({"num_workers": 4})

    class StatefulDataLoader(script.module.DataLoader):  # type: ignore[misc,name-defined]
        def __init__(self, dataset: Any, shuffle: bool | None = None, num_workers: int = 0) -> None:
            self.dataset, self.num_workers, self.prefetch_factor = dataset, num_workers, 2

        def load_state_dict(self, state: Any) -> None:
            """Nothing."""

    module = SimpleNamespace(__name__=STATEFUL, StatefulDataLoader=StatefulDataLoader)
    script.guest.on_module(module)  # type: ignore[arg-type]
    script.module.DataLoader = StatefulDataLoader
    assert script.train(num_workers=1).num_workers == 4
