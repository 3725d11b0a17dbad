"""DALI's pipelines and iterators, as its modules make them, without DALI."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from types import FrameType, ModuleType
from typing import Any

import pytest

from pipetune.hook import dali
from pipetune.hook.built import patch_constructor
from pipetune.hook.dali import LIBRARY, PIPELINE, PYTORCH, described, source_of
from pipetune.hook.profile import Profile, Tuned
from pipetune.hook.tuned import _Guest
from pipetune.records.script import LoaderIdentity
from tests.unit.hook.fake_script import Script


def pipeline_module() -> Any:
    class Pipeline:
        def __init__(
            self, batch_size: int = 4, num_threads: int | None = None, device_id: int | None = None,
            prefetch_queue_depth: Any = 2,
        ) -> None:  # fmt: skip
            self.max_batch_size, self.num_threads, self.prefetch_queue_depth = (
                batch_size,
                num_threads,
                prefetch_queue_depth,
            )

    module: Any = ModuleType(PIPELINE)
    module.Pipeline = Pipeline
    return module


def pytorch_module() -> Any:
    class DALIGenericIterator:
        def __init__(self, pipeline: Any, batches: int = 4, auto_reset: str = "yes") -> None:
            self._pipes, self.batches, self._auto_reset, self.given, self.resets = [pipeline], batches, auto_reset, 0, 0

        def __iter__(self) -> Any:
            return self

        def __len__(self) -> int:
            return self.batches

        def __next__(self) -> list[dict[str, int]]:
            if self.given == self.batches:
                if self._auto_reset == "yes":
                    self.reset()
                raise StopIteration
            self.given += 1
            return [{"data": self.given}]

        def reset(self) -> None:
            self.given, self.resets = 0, self.resets + 1

    module: Any = ModuleType(PYTORCH)
    module.DALIGenericIterator = DALIGenericIterator
    return module


class Settings:
    """Gives each pipeline the same settings, and notes who made it."""

    def __init__(self, settings: Mapping[str, Any] | None) -> None:
        self.settings, self.frames, self.given = settings, [], []  # type: ignore[var-annotated]
        self.made: list[Any] = []
        self.complaints: list[BaseException] = []
        self.module = pipeline_module()
        patch_constructor(self.module.Pipeline, LIBRARY, self.find, self.made.append, self.complaints.append)

    def find(self, frame: FrameType | None, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        self.frames.append(frame)
        self.given.append(dict(given))
        return self.settings


def test_a_pipeline_is_made_as_the_script_has_it_where_nothing_is_to_be_changed() -> None:
    one = Settings(None)
    pipeline = one.module.Pipeline(8, 3, prefetch_queue_depth=4)
    assert (pipeline.max_batch_size, pipeline.num_threads, pipeline.prefetch_queue_depth) == (8, 3, 4)
    assert one.made == [pipeline]
    # As DALI itself finds out which arguments are its own.
    assert "prefetch_queue_depth" in inspect.getfullargspec(one.module.Pipeline.__init__).args
    assert one.given[0]["num_threads"] == 3
    assert one.frames[0].f_code.co_name.startswith("test_a_pipeline_is_made")


def test_settings_have_the_pipelines_names_and_others_are_left_out() -> None:
    one = Settings({"num_workers": 7, "prefetch_factor": None, "pin_memory": True})
    pipeline = one.module.Pipeline(batch_size=8, num_threads=3)
    assert (pipeline.num_threads, pipeline.prefetch_queue_depth, one.complaints) == (7, 2, [])


def test_a_class_of_the_scripts_is_made_by_who_calls_it() -> None:
    one = Settings({"num_workers": 7})

    class Mine(one.module.Pipeline):  # type: ignore[name-defined,misc]
        def __init__(self, threads: int) -> None:
            super().__init__(8, threads, 0)

    assert Mine(2).num_threads == 7
    assert one.frames[0].f_code.co_name.startswith("test_a_class_of_the_scripts")


def test_an_error_of_ours_leaves_the_pipeline_as_it_is_and_one_of_the_scripts_is_its_own() -> None:
    one = Settings(None)
    one.find = lambda *_: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    patch_constructor(one.module.Pipeline, LIBRARY, one.find, one.made.append, one.complaints.append)
    assert one.module.Pipeline(8, 3).num_threads == 3
    assert [type(error) for error in one.complaints] == [ZeroDivisionError]
    with pytest.raises(TypeError, match="colour"):
        one.module.Pipeline(colour="red")


@pytest.mark.parametrize("auto_reset", ["yes", "no"])
def test_epochs_are_as_long_as_they_are_whatever_happens_in_them(auto_reset: str) -> None:
    module = pytorch_module()
    iterator = module.DALIGenericIterator(pipeline_module().Pipeline(), batches=2, auto_reset=auto_reset)
    source = source_of(iterator, module.DALIGenericIterator.__next__)
    assert [source.next(), source.next()] == [[{"data": 1}], [{"data": 2}]]
    with pytest.raises(StopIteration):
        source.next()

    def epoch(replays: int = 0) -> list[int]:
        if auto_reset == "no" and iterator.given == iterator.batches:
            iterator.reset()  # DALI passes over it in the middle of an epoch
        got = []
        if replays:
            source.replay()
            got = [source.next()[0]["data"] for _ in range(replays)]
            source.switch({})
        with contextlib.suppress(StopIteration):
            while True:
                got.append(source.next()[0]["data"])
        return got

    assert epoch() == [1, 2]
    source.kept.keep([{"data": 9}])
    assert epoch(1) == [9, 1]
    assert epoch() == [2, 1]
    assert epoch(2) == [9, 9]
    assert epoch() == [2, 1]
    assert not source.awaits_first


def test_it_replays_and_takes_no_other_settings() -> None:
    module = pytorch_module()
    source = source_of(module.DALIGenericIterator(None), module.DALIGenericIterator.__next__)
    source.kept.keep(source.next())
    source.replay()
    assert source.next() == source.next() == [{"data": 1}]
    source.switch({})
    assert source.next() == [{"data": 2}]
    with pytest.raises(ValueError, match="when it is made"):
        source.switch({"num_workers": 3})
    source.close()


def test_depths_of_two_kinds_are_left() -> None:
    pipeline = pipeline_module().Pipeline(8, 3, prefetch_queue_depth={"cpu_size": 3, "gpu_size": 2})
    found = described(pytorch_module().DALIGenericIterator(pipeline), None)
    assert "prefetch_factor" in found["fixed"]
    assert found["settings"]["prefetch_factor"] == 2


def test_a_script_with_a_pipeline_is_recognised_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    script, pipelines, iterators = Script(monkeypatch), pipeline_module(), pytorch_module()
    for module in (pipelines, iterators):
        script.session.on_module(module)
    train = iterators.DALIGenericIterator(pipelines.Pipeline(8, num_threads=3), batches=30)
    val = iterators.DALIGenericIterator(pipelines.Pipeline(8, num_threads=3), batches=3)
    assert len(script.evaluate(val)) == 3
    assert script.channel.of("ready") == []
    epochs = 0
    while not script.channel.of("ready"):
        script.train(train)
        epochs += 1
        assert epochs < 3
    (ready,) = script.channel.of("ready")
    assert (ready["settings"]["num_workers"], ready["batch_size"], ready["batches"]) == (3, 8, 30)
    assert ready["written"] == {"num_workers": "3"}
    assert (ready["switchable"], ready["names"]["num_workers"]) == (False, "num_threads")
    assert ready["identity"]["sampler"] == "DALI"
    assert [message["dataset"] for message in script.channel.of("loader")] == ["a DALI pipeline"] * 2
    assert {message["library"] for message in script.channel.of("loader")} == {"DALI"}


def test_run_tuned_builds_it_with_the_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    identity = LoaderIdentity(
        file=__file__, function="test_run_tuned_builds_it_with_the_settings", dataset=f"{dali.Graph.__module__}.Graph",
        sampler="DALI", ordinal=0, position=(0, 0),
    )  # fmt: skip
    settings = {"num_workers": 5, "prefetch_factor": 4}
    guest, module = _Guest(Profile((Tuned(identity, settings, False),), {})), pipeline_module()
    guest.on_module(module)
    pipeline = module.Pipeline(8, num_threads=3)
    assert (pipeline.num_threads, pipeline.prefetch_queue_depth) == (5, 4)
    assert module.Pipeline(8, num_threads=3).num_threads == 3, "the second one, for validation say"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(": num_threads 3 -> 5, prefetch_queue_depth 2 -> 4")
    refusing = _Guest(Profile((Tuned(identity, settings, False),), {"refused": "other cores"}))
    other = pipeline_module()
    refusing.on_module(other)
    assert other.Pipeline(8, num_threads=3).num_threads == 3
    assert "left as it is: other cores" in capsys.readouterr().err
