from __future__ import annotations

import functools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pipetune.hook.describe import Site
from pipetune.hook.profile import Matcher, Profile, Tuned, applied, identity_of, read_profile, use_pil
from pipetune.hook.registry import Known, Loaders
from pipetune.records.script import LoaderIdentity
from pipetune.records.sweep import to_dict

IDENTITY = LoaderIdentity(
    file="/job/train.py", function="main", dataset="Images", sampler="RandomSampler", ordinal=0, position=(7, 4)
)


class Images:
    """A data set of the script's, which lives on."""

    alive: ClassVar[list[Images]] = []

    def __init__(self) -> None:
        self.alive.append(self)


class Gone:
    """One that does not."""


def known(**changes: Any) -> Known:
    identity = replace(IDENTITY, **changes)
    return Known(identity, Site(identity.file, identity.function, 40, identity.position, (40, 40, 4, 20)))


def matcher(*identities: LoaderIdentity, alone_there: bool = False) -> Matcher:
    loaders = tuple(Tuned(one, {"num_workers": 7 + number}, alone_there) for number, one in enumerate(identities))
    return Matcher(Profile(loaders, {}))


def found(made: Matcher, one: Known, dataset: Any) -> Any:
    tuned = made.find(one, dataset)
    return None if tuned is None else tuned.settings["num_workers"]


def test_another_pil_comes_first_on_the_path_of_the_python_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/job"])
    assert use_pil(Profile((), {})) is None
    assert sys.path == ["/job"]
    reason = use_pil(Profile((), {}, {"folder": "/side", "tag": "cpython-39"}))
    assert reason is not None
    assert "cpython-39" in reason
    assert sys.path == ["/job"]
    assert use_pil(Profile((), {}, {"folder": "/side", "tag": str(sys.implementation.cache_tag)})) is None
    assert sys.path == ["/side", "/job"]


@pytest.mark.parametrize(
    "changes", [{}, {"position": (9, 8)}, {"position": (0, 0)}], ids=["as it was", "edited above", "moved"]
)
def test_a_loader_is_found_wherever_its_lines_have_moved(changes: dict[str, Any]) -> None:
    made = matcher(IDENTITY)
    assert found(made, known(**changes), Images()) == 7
    assert made.matched == {IDENTITY}


@pytest.mark.parametrize(
    "changes",
    [
        {"ordinal": 1}, {"file": "/job/eval.py"}, {"function": "validate"}, {"dataset": "Other"},
        {"sampler": "SequentialSampler"},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_another_loader_is_not_taken_for_it(changes: dict[str, Any]) -> None:
    made = matcher(IDENTITY)
    assert found(made, known(**changes), Images()) is None
    assert made.matched == set()


def test_one_that_a_framework_makes_again_from_the_same_data_set_is_found_again() -> None:
    made, dataset = matcher(IDENTITY), Images()
    assert found(made, known(), dataset) == 7
    assert found(made, known(ordinal=3), dataset) == 7
    assert found(made, known(ordinal=3), Images()) is None


def test_one_that_its_call_makes_anew_each_epoch_is_found_where_the_call_makes_no_other() -> None:
    made = matcher(IDENTITY, alone_there=True)
    assert [found(made, known(ordinal=epoch), Images()) for epoch in range(3)] == [7, 7, 7]
    assert found(made, known(ordinal=3, position=(11, 4)), Images()) is None


def test_of_two_by_one_call_each_gets_its_own() -> None:
    made = matcher(IDENTITY, replace(IDENTITY, ordinal=1))
    assert [found(made, known(ordinal=number), Images()) for number in range(3)] == [7, 8, None]


def factory(loaders: Loaders, dataset: Any, sampler: str) -> Known | None:
    return loaders.identify(sys._getframe(), dataset, sampler)


def test_a_factory_that_makes_train_and_val_gives_settings_to_train_alone() -> None:
    first = Loaders()
    train = factory(first, Images(), "RandomSampler")
    factory(first, Images(), "SequentialSampler")
    assert train is not None
    made, again, val = matcher(train.identity, alone_there=first.alone_at(train)), Loaders(), Images()
    other = factory(again, Images(), "RandomSampler")
    assert other is not None
    assert found(made, other, Images()) == 7
    validation = factory(again, val, "SequentialSampler")
    assert validation is not None
    assert found(made, validation, val) is None


def test_a_data_set_that_is_gone_does_not_pass_its_settings_on_to_the_next_at_its_address() -> None:
    made = matcher(IDENTITY)
    dataset = Gone()
    found(made, known(), dataset)
    address = id(dataset)
    del dataset
    others = [Gone() for _ in range(50)]
    at_its_address = next((one for one in others if id(one) == address), None)
    if at_its_address is None:
        pytest.skip("the interpreter has put none there")
    assert found(made, known(ordinal=1), at_its_address) is None


def test_a_profile_survives_json(tmp_path: Path) -> None:
    stored = {
        "loaders": [{"identity": to_dict(IDENTITY), "settings": {"num_workers": 7}, "alone_there": True}],
        "checks": {"torch": "2.9"},
    }
    place = tmp_path / "tuned.json"
    place.write_text(json.dumps(stored))
    assert read_profile(str(place)) == Profile((Tuned(IDENTITY, {"num_workers": 7}, True),), {"torch": "2.9"})
    assert identity_of(json.loads(json.dumps(to_dict(IDENTITY)))) == IDENTITY


@pytest.mark.parametrize("text", ["", "[]", '{"loaders": [{}]}', '{"loaders": [{"identity": {}, "settings": {}}]}'])
def test_what_is_no_profile_raises_what_is_documented(text: str, tmp_path: Path) -> None:
    place = tmp_path / "tuned.json"
    place.write_text(text)
    with pytest.raises((OSError, ValueError, KeyError, TypeError)):
        read_profile(str(place))


def test_settings_take_the_place_of_arguments_and_the_rest_stays() -> None:
    arguments = {"dataset": "d", "num_workers": 2, "shuffle": True, "drop_last": None}
    changed = applied(arguments, {"num_workers": 4, "prefetch_factor": 8, "pin_memory": True})
    assert changed == {
        "dataset": "d", "num_workers": 4, "shuffle": True, "drop_last": None, "prefetch_factor": 8, "pin_memory": True,
    }  # fmt: skip
    assert arguments["num_workers"] == 2


def test_without_workers_everything_goes_that_needs_some() -> None:
    arguments = {
        "dataset": "d", "num_workers": 4, "prefetch_factor": 8, "persistent_workers": True, "timeout": 30,
        "multiprocessing_context": "spawn",
    }  # fmt: skip
    changed = applied(arguments, {"num_workers": 0, "prefetch_factor": None})
    assert changed["num_workers"] == changed["timeout"] == 0
    assert changed["persistent_workers"] is False
    assert changed["prefetch_factor"] is changed["multiprocessing_context"] is None


def test_a_script_without_workers_that_gets_some_keeps_what_it_did_not_say() -> None:
    changed = applied({"dataset": "d"}, {"num_workers": 3, "prefetch_factor": 2, "pin_memory": False})
    assert changed == {"dataset": "d", "num_workers": 3, "prefetch_factor": 2, "pin_memory": False}


def test_the_start_method_is_the_context() -> None:
    changed = applied({"dataset": "d"}, {"num_workers": 3, "start_method": "forkserver"})
    assert changed["multiprocessing_context"] == "forkserver"
    assert "start_method" not in changed
    changed = applied({"dataset": "d", "num_workers": 2}, {"num_workers": 0, "start_method": "spawn"})
    assert "start_method" not in changed
    assert changed.get("multiprocessing_context") is None


def seed(worker: int, num_workers: int, rank: int) -> tuple[int, int, int]:
    return worker, num_workers, rank


def test_a_start_up_that_was_told_the_number_of_workers_is_told_the_new_one() -> None:
    start = functools.partial(seed, num_workers=2, rank=1)
    changed = applied({"dataset": "d", "num_workers": 2, "worker_init_fn": start}, {"num_workers": 5})
    assert changed["worker_init_fn"](3) == (3, 5, 1)
    other = applied({"dataset": "d", "num_workers": 3, "worker_init_fn": start}, {"num_workers": 5})
    assert other["worker_init_fn"](3) == (3, 2, 1)  # another number, which means something else


@pytest.mark.parametrize("workers", [0, 3])
def test_nothing_for_torch_is_left_of_settings_that_it_does_not_know(workers: int) -> None:
    changed = applied(
        {"dataset": "d"}, {"num_workers": workers, "worker_cores": "all", "opencv_threads": 0}, (0, 1)
    )  # fmt: skip
    assert not {"worker_cores", "opencv_threads"} & set(changed)
    assert changed["worker_init_fn"].cores == (0, 1)
    assert changed["worker_init_fn"].opencv_threads == 0
