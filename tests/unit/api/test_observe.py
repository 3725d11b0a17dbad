from __future__ import annotations

import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipetune
from pipetune.errors import PipetuneError, UsageError
from pipetune.store.folder import RunFolder
from pipetune.units import format_rate, format_share
from pipetune.usercode.batches import size_of
from tests.run_folders import readings


class Slow:
    """Batches of eight that take 10 ms each; counts how often it was started and closed."""

    def __init__(self, count: int) -> None:
        self.count, self.started, self.closed = count, 0, 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        self.started += 1
        try:
            for number in range(self.count):
                time.sleep(0.01)
                yield np.full((8, 3), number), np.zeros(8)
        finally:
            self.closed += 1


def test_a_loop_is_seen_as_it_runs_and_its_frames_are_stored(tmp_path: Path) -> None:
    loader = Slow(12)
    with pipetune.observe(loader, out=tmp_path / "run", interval_s=0.02) as seen:
        assert len(seen) == 12
        numbers = [int(images[0, 0]) for images, _ in seen]

    assert numbers == list(range(12))
    steps = seen.steps()
    assert steps["phase"].tolist() == ["warmup"] * 3 + ["timed"] * 9
    assert (steps["data_wait_s"] >= 0.009).all()
    assert steps["samples"].tolist() == [8] * 12
    stalls = seen.stalls()
    assert len(stalls) == 9
    assert stalls["lost_s"].sum() == pytest.approx(steps["idle_s"][3:].sum())
    frame = seen.frame()
    assert frame["samples"].tolist() == [72]
    assert frame["accelerator_idle_frac"][0] > 0.5
    assert frame["samples_per_s"][0] == pytest.approx(
        72 / (steps["end_s"].iloc[-1] - steps["end_s"][2]),
        rel=0.2,  # what lies between two steps does not count
    )
    assert frame["samples_per_s_low"][0] < frame["samples_per_s"][0] < frame["samples_per_s_high"][0]
    assert len(seen.readings()) >= 1
    stored = pipetune.load(tmp_path / "run")
    assert (stored.kind, stored.problems) == ("observe", ())
    assert stored.steps().equals(steps)
    assert stored.frame().equals(frame)


def test_epochs_follow_each_other(tmp_path: Path) -> None:
    loader = Slow(3)
    with pipetune.observe(loader, save=False) as seen:
        for _ in range(2):
            assert len(list(seen)) == 3

    assert (loader.started, loader.closed) == (2, 2)
    assert len(seen.steps()) == 6
    assert list(tmp_path.iterdir()) == []


def test_a_loop_that_is_left_early_keeps_its_last_step() -> None:
    loader = Slow(100)
    with pipetune.observe(loader, save=False) as seen:
        for number, _ in enumerate(seen):
            if number == 4:
                break

    assert len(seen.steps()) == 5
    assert loader.closed == 1


def test_what_an_exception_ends_is_kept(tmp_path: Path) -> None:
    def train() -> None:
        with pipetune.observe(Slow(9), out=tmp_path / "run", interval_s=0.01) as seen:
            for number, _ in enumerate(seen):
                if number == 5:
                    raise RuntimeError("in the step")

    with pytest.raises(RuntimeError, match="in the step"):
        train()

    stored = pipetune.load(tmp_path / "run")
    assert len(stored.steps()) == 6
    assert stored.result["reason"] == "RuntimeError: in the step"
    assert not [thread for thread in threading.enumerate() if thread.name == "pipetune-sampler"]


def test_a_loaders_own_exception_comes_through() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("bad image")

    with pytest.raises(ValueError, match="bad image"), pipetune.observe(broken(), save=False) as seen:
        list(seen)

    assert len(seen.steps()) == 1


def test_outside_its_with_nothing_is_iterated() -> None:
    with pytest.raises(UsageError, match="inside its with"):
        next(iter(pipetune.observe(Slow(1), save=False)))


def test_a_loop_of_nothing() -> None:
    with pipetune.observe([], save=False) as seen:
        assert list(seen) == []

    assert seen.steps().empty
    assert seen.frame()["steps"].tolist() == [0]
    assert np.isnan(seen.frame()["samples_per_s"][0])


def test_a_folder_that_is_in_use_is_refused_before_the_loop(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UsageError, match="is not empty"), pipetune.observe([], out=tmp_path):
        pass
    for wrong in ({"interval_s": 0}, {"warmup_steps": -1}):
        with pytest.raises(UsageError, match="is out of range"):
            pipetune.observe([], **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="device 'gpu' is not known"), pipetune.observe([], device="gpu", save=False):
        pass


def test_a_full_disk_does_not_end_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PipetuneError("no space left")

    monkeypatch.setattr(RunFolder, "append_timeline", refuse)
    with (
        pytest.warns(UserWarning, match="could not all be written: no space left"),
        pipetune.observe(Slow(6), out=tmp_path / "run", interval_s=0.02) as seen,
    ):
        assert len(list(seen)) == 6

    assert len(seen.steps()) == 6


def test_a_disk_that_is_full_for_a_moment_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append, full = RunFolder.append_timeline, [True, True]

    def refuse(*arguments: Any) -> None:
        if full and full.pop():
            raise PipetuneError("no space left")
        append(*arguments)

    monkeypatch.setattr(RunFolder, "append_timeline", refuse)
    monkeypatch.setattr("pipetune.api.observe._WRITE_S", 0.0)
    with pipetune.observe(Slow(20), out=tmp_path / "run", interval_s=0.02) as seen:
        assert len(list(seen)) == 20

    assert (full, seen.problem) == ([], None)
    assert len(pipetune.load(tmp_path / "run").steps()) == 20


def test_of_very_many_steps_the_newest_stay_in_memory_and_all_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipetune.api.observe._MAX_STEPS", 4)
    monkeypatch.setattr("pipetune.api.observe._WRITE_S", 0.0)
    with pipetune.observe(Slow(30), out=tmp_path / "run", interval_s=0.02) as seen:
        assert len(list(seen)) == 30

    assert len(seen._steps) <= 4
    assert seen.steps()["samples"].tolist() == [8] * 30
    assert seen.frame()["samples"].tolist() == [27 * 8]
    assert "steps 30; of the newest" in repr(seen)


def test_a_loop_is_observed_once() -> None:
    with pipetune.observe([1], save=False) as seen:
        assert len(list(seen)) == 1
    with pytest.raises(UsageError, match="observed already"), seen:
        pass


def test_what_lies_between_two_epochs_is_no_stall() -> None:
    with pipetune.observe(Slow(4), save=False, warmup_steps=0) as seen:
        for _ in range(2):
            for _ in seen:
                pass
            time.sleep(0.5)  # an evaluation

    assert seen.steps()["idle_s"].max() < 0.4
    assert seen.frame()["seconds"][0] < 0.4
    assert seen.frame()["accelerator_idle_frac"][0] <= 1.01


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (np.zeros((4, 3)), 4),
        ((np.zeros((4, 3)), np.zeros(4)), 4),
        ({"images": np.zeros((5, 3)), "labels": np.zeros(5)}, 5),
        ([{"image": [np.zeros((6, 2))]}], 6),
        ([1, 2, 3], 3),
        (["a.jpg", "b.jpg"], 2),
        ("text", 1),
        (7, 1),
        ((), 0),
        (np.float32(3), 1),
        (((np.zeros((3, 5, 6)), np.zeros((3, 7, 8))), ({}, {})), 2),
        ({"images": [np.zeros((3, 5, 6))] * 4}, 4),
        ([{"image": np.zeros((3, 5, 6))}] * 16, 16),
        ([{"file_name": "a.jpg", "image": np.zeros((3, 5, 6))}] * 16, 16),
        ([{"data": np.zeros((8, 3, 5, 6)), "label": np.zeros((8, 1))}], 8),  # DALI's iterator
        ([(np.zeros((3, 5, 6)), {"boxes": np.zeros((2, 4))})] * 16, 16),
        ([(np.zeros((3, 5, 6)), 7)] * 16, 16),
        ([np.zeros((3, 5, 6)), np.zeros((3, 7, 8)), np.zeros((1, 7, 8))], 3),
        ([np.zeros((9, 5, 6)), np.zeros((9, 5, 6))], 9),  # sequences and their masks
        ([np.zeros((6, 3, 5, 5)), np.zeros(6)], 6),
        (types.MappingProxyType({"pixel_values": np.zeros((5, 3))}), 5),
    ],
)
def test_the_size_of_a_batch_is_that_of_its_first_array(batch: object, size: int) -> None:
    assert size_of(batch) == size


def test_a_loop_describes_itself_from_its_begin_to_its_end(tmp_path: Path) -> None:
    seen = pipetune.observe(Slow(6), out=tmp_path / "<i>run</i>", interval_s=0.02)
    assert repr(seen) == "<pipetune.observe: state not begun: use it in a with>"
    with seen:
        assert repr(seen).startswith("<pipetune.observe: state observing; duration ")
        assert "steps 0, all of them warm-up" in repr(seen)
        for _ in seen:
            pass

    assert "state the loop ended; duration" in repr(seen)
    assert "steps 3 after 3 of warm-up; rate " in repr(seen)
    assert "loop waits for data" in repr(seen)
    assert repr(seen).endswith(f"run folder {tmp_path}/<i>run</i>>")
    assert "&lt;i&gt;run&lt;/i&gt;" in seen._repr_html_()
    assert repr(seen) == repr(seen)  # the duration does not change


def test_the_figures_are_those_of_the_frame() -> None:
    with pipetune.observe(Slow(9), save=False) as seen:
        for _ in range(2):
            for _ in seen:
                pass
            time.sleep(0.05)

    frame = seen.frame()
    facts = seen._facts()
    assert facts["rate"] == format_rate(frame["samples_per_s"][0], " samples/s")
    assert facts["accelerator idle"].startswith(f"{format_share(frame['accelerator_idle_frac'][0])} of ")
    assert facts["loop waits for data"].startswith(f"{format_share(frame['data_wait_frac'][0])} of ")
    assert facts["run folder"] == "none (save=False)"


def test_a_loop_that_fails_says_so() -> None:
    with pytest.raises(ZeroDivisionError), pipetune.observe(Slow(6), save=False) as seen:
        raise ZeroDivisionError("\x1b[31mred")

    assert "state ZeroDivisionError: ?[31mred; " in repr(seen)


def test_of_very_many_readings_only_some_are_kept() -> None:
    with pipetune.observe([1], save=False) as seen:
        assert seen._sampler is not None
        seen._sampler.stop()
        (reading, *_) = readings(1)
        seen._readings.clear()
        seen._count = 0
        for _ in range(20_000):
            seen._on_reading(reading)
        assert len(seen._readings) == 11_000


def test_without_a_folder_the_newest_steps_are_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetune.api.observe._MAX_STEPS", 8)
    monkeypatch.setattr("pipetune.api.observe._WRITE_S", 0.0)
    with pipetune.observe(Slow(40), save=False, interval_s=0.01) as seen:
        assert len(list(seen)) == 40

    assert len(seen._steps) <= 8
    assert len(seen._steps) + seen._dropped == 40
    assert f"steps 40; of the newest {len(seen._steps)}" in repr(seen)
    assert seen.steps()["phase"].tolist() == ["timed"] * len(seen._steps), "the warm-up is long gone"
