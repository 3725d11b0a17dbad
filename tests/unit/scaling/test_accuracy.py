from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.records.scaling import Curve
from pipetune.scaling.accuracy import Reach, falls, parse_reach, reached_s, read_curve


def curve_of(path: Path, text: str, metric: str | None = None, epoch_s: float | None = None) -> Curve:
    path.write_text(text)
    return read_curve(path, metric, 8, lambda: epoch_s)


def test_seconds_since_the_beginning(tmp_path: Path) -> None:
    found = curve_of(tmp_path / "m.csv", "time_s,top1\n60,0.2\n120,0.5\n180,0.6\n")
    assert (found.metric, found.accelerators) == ("top1", 8)
    assert found.times_s == (60, 120, 180)
    assert found.values == (0.2, 0.5, 0.6)
    assert reached_s(found, Reach(0.5)) == 120
    assert reached_s(found, Reach(0.7)) is None


def test_a_loss_falls(tmp_path: Path) -> None:
    found = curve_of(tmp_path / "m.csv", "hours,loss\n1,3.0\n2,1.5\n3,0.9\n")
    assert reached_s(found, Reach(1.0)) == 3 * 3600


def test_the_trend_says_what_is_better(tmp_path: Path) -> None:
    """Where it begins does not: an accuracy may begin above the value, a loss below."""
    tuned = curve_of(tmp_path / "m.csv", "time_s,top1\n60,0.80\n120,0.85\n")
    assert reached_s(tuned, Reach(0.75)) == 60
    assert reached_s(tuned, Reach(0.9)) is None
    loss = curve_of(tmp_path / "m.csv", "time_s,loss\n60,0.9\n120,0.7\n")
    assert reached_s(loss, Reach(1.0)) == 60
    assert reached_s(loss, Reach(0.5)) is None


@pytest.mark.parametrize(
    ("metric", "values", "value"),
    [
        ("val_acc", (0.80, 0.83, 0.79), 0.85), ("top1", (0.10, 0.50, 0.76, 0.001), 0.8),
        ("eval/accuracy", (0.9, 0.7), 0.95), ("metrics/mAP50-95(B)", (0.5, 0.4), 0.6),
        ("val_loss", (1.0, 0.6, 1.1), 0.5), ("eval/wer", (0.4, 0.5), 0.3), ("Loss/validation", (0.4,), 0.3),
    ],
)  # fmt: skip
def test_a_training_that_gets_worse_has_not_reached_what_it_never_showed(
    metric: str, values: tuple[float, ...], value: float
) -> None:
    times = tuple(60.0 * number for number in range(1, len(values) + 1))
    curve = Curve(name="m.csv", metric=metric, accelerators=8, times_s=times, values=values)
    assert reached_s(curve, Reach(value)) is None
    best = min(values) if falls(curve) else max(values)
    assert reached_s(curve, Reach(best)) == times[values.index(best)]


def test_the_user_may_say_what_is_better() -> None:
    curve = Curve(name="m.csv", metric="dist", accelerators=8, times_s=(1.0, 2.0, 3.0), values=(5.0, 3.0, 6.0))
    assert reached_s(curve, parse_reach("<=3.5")) == 2.0
    assert reached_s(curve, parse_reach(">= 6")) == 3.0
    assert parse_reach("0.75") == parse_reach(0.75) == Reach(0.75)
    for text in ("<=", "high", "< 3"):
        with pytest.raises(ValueError, match="could not convert"):
            parse_reach(text)


def test_columns_may_be_aligned(tmp_path: Path) -> None:
    found = curve_of(
        tmp_path / "m.csv", "      time_s,      metrics/top1\n   60,   0.5\n  120,   0.6\n", "metrics/top1"
    )
    assert (found.times_s, found.values) == ((60, 120), (0.5, 0.6))


def test_an_evaluation_before_the_first_step_is_no_epoch(tmp_path: Path) -> None:
    text = "epoch,step,val_acc\n0,0,0.01\n1,10,0.3\n2,20,0.5\n"
    assert curve_of(tmp_path / "m.csv", text, epoch_s=60.0).times_s == (0.0, 60.0, 120.0)


@pytest.mark.parametrize("column", ["Wall time", "timestamp", "time"])
def test_clock_time_begins_with_the_first_line(tmp_path: Path, column: str) -> None:
    found = curve_of(tmp_path / "m.csv", f"{column},Step,Value\n1700000000,1,0.1\n1700000600.5,2,0.8\n")
    assert found.times_s == (0, 600.5)
    assert found.from_first
    milliseconds = curve_of(tmp_path / "m.csv", f"{column},Value\n1700000000000,0.1\n1700000600500,0.8\n")
    assert milliseconds.times_s == (0, 600.5)


def test_dates(tmp_path: Path) -> None:
    found = curve_of(tmp_path / "m.csv", "date,acc\n2026-01-31T10:00:00,0.1\n2026-01-31T10:05:00,0.2\n")
    assert found.times_s == (0, 300)


def test_json_lines_of_a_training_that_still_writes(tmp_path: Path) -> None:
    lines = [{"_runtime": 10.0, "loss": 2.0}, {"_runtime": 20.0, "val/acc": 0.4, "loss": 1.0}]
    text = "\n".join(map(json.dumps, lines)) + '\n{"_runtime": 30.0, "val/'
    assert curve_of(tmp_path / "m.jsonl", text, "val/acc").times_s == (20.0,)
    with pytest.raises(UsageError, match=r"line 1 is no JSON"):
        curve_of(tmp_path / "m.jsonl", '{"a": 1\n{"a": 2}\n')


def test_the_state_of_a_trainer_has_epochs(tmp_path: Path) -> None:
    state = {"epoch": 2.0, "log_history": [
        {"epoch": 0.5, "loss": 2.0, "step": 5}, {"epoch": 1.0, "eval_accuracy": 0.3, "step": 10},
        {"epoch": 2.0, "eval_accuracy": 0.6, "step": 20},
    ]}  # fmt: skip
    found = curve_of(tmp_path / "trainer_state.json", json.dumps(state), "eval_accuracy", epoch_s=100.0)
    assert found.times_s == (100.0, 200.0)


def test_epochs_that_are_counted_from_zero_have_ended(tmp_path: Path) -> None:
    text = "epoch,step,val_acc\n0,10,0.3\n1,20,0.5\n"
    assert curve_of(tmp_path / "m.csv", text, epoch_s=60.0).times_s == (60.0, 120.0)
    with pytest.raises(UsageError, match="has no time"):
        curve_of(tmp_path / "m.csv", text)


@pytest.mark.parametrize(
    ("text", "metric", "message"),
    [
        ("", None, "no lines of figures"),
        ("time_s,top1\n", None, "no lines of figures"),
        ("time_s,top1,top5\n1,0.2,0.4\n", None, "has 2 metrics.*top1, top5"),
        ("time_s,top1\n1,0.2\n", "top2", "no value of 'top2'.*top1"),
        ("time_s,name\n1,x\n", None, "has no metrics"),
        ("x,top1\n1,0.2\n", "top1", "has no time"),
        ("time_s,top1\n1,nan\n", "top1", "no value of 'top1'"),
        ("time,top1\n60,0.1\n58,0.2\n", "top1", "its times go back"),
        ('{"log_history": null}', "top1", "no lines of figures"),
        ("[" * 100_000, "top1", "nested too deeply|no lines of figures"),
        ('{"time_s": 1, "top1": 1' + "0" * 400 + "}", "top1", "no value of 'top1'"),
        ('time_s,top1\n1,"' + "x" * 200_000, "top1", "no CSV file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, metric: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        curve_of(tmp_path / "m.csv", text, metric)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_curve(tmp_path / "m.csv", None, None, lambda: None)
