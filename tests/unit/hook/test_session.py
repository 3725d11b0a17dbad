from __future__ import annotations

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipetune.hook import session as module
from pipetune.hook.profile import Profile, Tuned
from pipetune.hook.session import Session
from pipetune.hook.which import CONFIRMATIONS, WITHOUT_OPTIMIZER
from pipetune.measure.script.protocol import REFUSE_SAVES
from tests.unit.hook import fake_script
from tests.unit.hook.fake_script import IDENTITY, Script, Waiting
from tests.unit.hook.fake_torch import Endless, Numbers

#: As Accelerate's, in the part that matters here.
DISPATCHER = """
class DataLoaderDispatcher:
    def __init__(self, loader):
        self.base_dataloader = loader
        self.__class__ = type("DataLoader", (DataLoaderDispatcher,), {})

    def __iter__(self):
        yield from self.base_dataloader.__iter__()
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


def kinds(script: Script) -> list[str]:
    return [message["type"] for message in script.channel.sent]


def test_the_loader_that_is_trained_on_is_told_with_all_that_is_known_of_it(script: Script) -> None:
    train = script.loader(shuffle=True, num_workers=0)
    script.loader(Numbers(8))
    seen = script.train(train)
    assert len(seen) == CONFIRMATIONS
    assert kinds(script) == ["torch", "loader", "loader", "iterated", "ready"]
    (ready,) = script.channel.of("ready")
    assert ready["identity"]["function"] == "Script.loader"
    assert ready["identity"]["sampler"] == "RandomSampler"
    assert ready["where"].startswith(f"{fake_script.__file__}:")
    assert (ready["batches"], ready["batch_size"], ready["iterable"]) == (100, 4, False)
    assert (ready["device"], ready["rank"], ready["ranks"], ready["torch"]) == ("cpu", 0, 1, "9.9")
    assert ready["settings"]["num_workers"] == 0


def test_an_evaluation_before_training_gets_its_batches_and_ends(script: Script) -> None:
    val = script.loader(Numbers(10))
    assert script.evaluate(val) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert script.evaluate(val) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert script.channel.of("ready") == []
    script.train(script.loader(shuffle=True))
    assert len(script.channel.of("ready")) == 1


def test_a_pass_over_the_data_before_training_is_not_taken_for_it(script: Script) -> None:
    assert len(list(script.loader(shuffle=True))) > WITHOUT_OPTIMIZER
    assert script.channel.of("ready") == []
    script.train(script.loader(Numbers(300), shuffle=True))
    (ready,) = script.channel.of("ready")
    assert ready["batches"] == 75


def test_what_looks_for_gradients_is_ended_once_the_loader_is_known(script: Script) -> None:
    original = script.torch.autograd._engine_run_backward
    train = script.loader(shuffle=True)
    iter(train)
    assert script.torch.autograd._engine_run_backward is not original
    script.train(train)
    assert script.torch.autograd._engine_run_backward is original


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_loader_that_rank_0_reads_for_all_is_measured_only_where_there_are_no_others(
    script: Script, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    monkeypatch.setattr(module, "_ranks", lambda: (0, ranks))
    train = script.loader(shuffle=True)
    accelerate = ModuleType("accelerate.data_loader")
    exec(DISPATCHER, vars(accelerate))
    script.train(accelerate.DataLoaderDispatcher(train))
    refused = [message["message"] for message in script.channel.of("refused")]
    assert len(script.channel.of("ready")) == (1 if ranks == 1 else 0)
    assert refused == ([] if ranks == 1 else [f"its loader cannot be measured: {module.FOR_ALL_RANKS}"])


@pytest.mark.timeout(20)
def test_so_does_one_of_an_iterable_data_set(script: Script) -> None:
    val = iter(script.loader(Endless(10)))
    script.gradients = False
    assert [next(val, None) for _ in range(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], None]


def test_an_evaluation_while_another_is_measured_gets_its_batches_and_ends(script: Script) -> None:
    script.train(script.loader(shuffle=True))
    val = script.loader(Numbers(10))
    assert script.evaluate(val) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert isinstance(iter(val), script.module._BaseDataLoaderIter)
    assert len(script.channel.of("ready")) == 1


def test_a_second_loader_of_each_step_is_counted_and_the_time_that_it_takes_is_known(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(module.Relay, "waited_for_others", lambda _, span_ns: waited.append(span_ns))
    first, second = iter(script.loader(shuffle=True)), iter(script.loader(shuffle=True))
    with contextlib.suppress(Waiting):
        for _ in range(100):
            next(first)
            next(second)
            script.step()
    with contextlib.suppress(Waiting):
        next(second)
    (ready,) = script.channel.of("ready")
    assert ready["others_trained"] == 1
    assert len(waited) == 1
    assert min(waited) > 0


def test_a_script_whose_files_are_protected_may_save(script: Script) -> None:
    script.train(script.loader(shuffle=True))
    script.torch.save({}, "during.pth")
    assert [target for _, target in script.saved] == ["during.pth"]


def test_a_checkpoint_while_it_is_measured_is_told_and_ends_the_process(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REFUSE_SAVES, "1")
    script.torch.save({}, "before.pth")
    script.train(script.loader(shuffle=True))
    left: list[int] = []

    class Left(BaseException):
        """The process has ended."""

    def leave(status: int) -> None:
        left.append(status)
        raise Left

    monkeypatch.setattr(module.os, "_exit", leave)
    assert script.session.trained is not None
    assert script.session.trained.relay is not None
    monkeypatch.setattr(script.session.trained.relay, "_leave", leave)
    with pytest.raises(Left):
        script.torch.save({}, "after.pth")
    assert script.channel.of("checkpoint") == [{"type": "checkpoint", "target": "after.pth"}]
    assert [target for _, target in script.saved] == ["before.pth"]
    assert left == [0]


def test_one_that_harms_nothing_is_written_as_ever(script: Script) -> None:
    script.train(script.loader(shuffle=True))
    script.torch.save({}, "after.pth")
    assert [target for _, target in script.saved] == ["after.pth"]
    assert script.channel.of("checkpoint") == []


def test_settings_of_a_fresh_start_are_applied_when_the_loader_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, Profile((Tuned(IDENTITY, {"num_workers": 2, "prefetch_factor": 4}, True),), {}))
    train, val = script.loader(shuffle=True), script.loader()
    assert (train.num_workers, train.prefetch_factor, val.num_workers) == (2, 4, 0)
    script.train(train)
    assert script.channel.of("ready")[0]["settings"]["num_workers"] == 2


def test_only_some_loaders_are_told(script: Script) -> None:
    for _ in range(50):
        script.loader(Numbers(4))
    assert len(script.channel.of("loader")) == module._MOST_REPORTED


def test_ranks_are_those_of_torch(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)  # type: ignore[arg-type]
    script.train(script.loader(shuffle=True))
    (ready,) = script.channel.of("ready")
    assert (ready["rank"], ready["ranks"]) == (1, 2)


def test_an_error_of_ours_gives_the_script_torchs_own_iterator(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("ours")

    monkeypatch.setattr(module, "Source", fail)
    assert list(script.loader(Numbers(4))) == [[0, 1, 2, 3]]
    (complaint,) = script.channel.of("complaint")
    assert "ours" in complaint["message"]


def test_what_goes_wrong_with_looking_at_a_loader_leaves_the_script_alone(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(Session, "_described", fails)
    assert len(script.train(script.loader(shuffle=True))) == 100
    (refused,) = script.channel.of("refused")
    assert refused["message"] == "its loader cannot be measured: RuntimeError: no"
    assert script.channel.of("ready") == []
