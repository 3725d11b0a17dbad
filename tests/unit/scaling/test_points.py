from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.records.sweep import HostShare, Outcome, RankShare
from pipetune.scaling import points
from pipetune.scaling.launch import LAUNCH_FILE
from pipetune.scaling.points import Point, check_same, points_of, table_points, together, with_hosts
from pipetune.scaling.predict import Host, whole_hosts
from tests.run_folders import CEILING, DEFAULT, TUNED, sweep_folder


def of_ranks(one: Outcome, ranks: int, **changes: Any) -> Outcome:
    """The same of several ranks, all alike."""
    assert one.measurement is not None
    share = RankShare(
        rank=0, samples_per_s=one.measurement.samples_per_s / ranks, goodput=one.measurement.goodput,
        data_wait_frac=0.1, accelerator_idle_frac=0.05, others_wait_frac=0.08,
    )  # fmt: skip
    shares = tuple(replace(share, rank=rank) for rank in range(ranks))
    measurement = replace(one.measurement, ranks=shares, others_wait_frac=0.08, **changes)
    return replace(one, measurement=measurement)


def ranked(path: Path, ranks: int, rate: float) -> Path:
    """A sweep of so many ranks, with a host rate."""

    def at(one: Outcome, value: float) -> Outcome:
        return of_ranks(one, ranks, samples_per_s=value, ci95=(0.97 * value, 1.03 * value))

    found = (at(CEILING, 1250.0 * ranks), at(DEFAULT, 0.5 * rate), at(TUNED, rate))
    return sweep_folder(path, found)


def test_a_run_is_a_point(tmp_path: Path) -> None:
    (point,), left_out = points_of([sweep_folder(tmp_path / "run")], None)
    assert left_out == []
    assert (point.accelerators, point.hosts, point.samples_per_s) == (1, 1, 1240.0)
    assert point.ci95 == pytest.approx((0.98 * 1240, 1.02 * 1240))
    assert point.candidate == "opencv-w2-p2-b64"
    assert point.workload.startswith("resnet50 of 224 px on ")
    assert (point.idle_frac, point.others_wait_frac) == (0.0, 0.0)
    assert point.images


def test_ranks_are_accelerators(tmp_path: Path) -> None:
    (point,), _ = points_of([ranked(tmp_path / "run", 4, 4000.0)], None)
    assert (point.accelerators, point.hosts, point.samples_per_s, point.others_wait_frac) == (4, 1, 4000.0, 0.08)


def of_hosts(path: Path, rates: Sequence[float]) -> Path:
    """A sweep of several hosts, with one accelerator each."""

    def both(one: Outcome, part: float) -> Outcome:
        assert one.measurement is not None
        hosts = tuple(
            HostShare(
                host=number, name=f"n{number + 1}", samples_per_s=part * rate,
                ci95=(0.9 * part * rate, 1.1 * part * rate), goodput=one.measurement.goodput, data_wait_frac=0.0,
                accelerator_idle_frac=0.0, cores_used=1.0, read_bytes_per_s=None, together_frac=1.0,
            )
            for number, rate in enumerate(rates)
        )  # fmt: skip
        rate = part * min(rates)
        return replace(one, measurement=replace(
            one.measurement, hosts=hosts, samples_per_s=rate, ci95=(0.9 * rate, 1.1 * rate), warnings=("slow at times",)
        ))  # fmt: skip

    return sweep_folder(path, (both(CEILING, 1.25), both(DEFAULT, 0.5), both(TUNED, 1.0)))


def test_hosts_that_measured_together_count_all_and_tell_nothing_of_communication(tmp_path: Path) -> None:
    (point,), _ = points_of([of_hosts(tmp_path / "run", (1000.0, 1500.0))], None)
    assert (point.accelerators, point.hosts, point.samples_per_s, point.separate) == (2, 2, 2000.0, True)
    assert point.ci95 == pytest.approx((1800.0, 2200.0)), "each step waits for the slowest"
    assert point.apart_samples_per_s == 2500.0
    assert point.notes == (f"{tmp_path / 'run'}: slow at times",)
    (host,), _ = points_of([sweep_folder(tmp_path / "one")], None)
    alone = Host(accelerators=1, samples_per_s=1000.0, half90=0.1, others_wait_frac=0.0, source="", measured=True)
    assert whole_hosts(alone, [point, host]) == []
    assert whole_hosts(alone, [replace(point, separate=False), host]) != []


def test_ranks_that_did_not_wait_for_each_other_count_as_the_slowest_does(tmp_path: Path) -> None:
    folder = ranked(tmp_path / "run", 4, 4000.0)
    for name in ("run.json", "result.json"):
        stored = json.loads((folder / name).read_text())
        stored["workload"]["sync"] = "none"
        for rank, share in enumerate(stored.get("recommended", {}).get("ranks", [])):
            share["samples_per_s"] = 500.0 if rank else 2500.0
        (folder / name).write_text(json.dumps(stored))
    (point,), _ = points_of([folder], None)
    assert point.others_wait_frac is None
    assert "--sync none" in point.notes[0]


def test_a_rate_with_communication_is_not_displaced_by_one_without() -> None:
    apart, trained = point(16, 2000.0, hosts=2, separate=True, candidate="a"), point(16, 1700.0, hosts=2)
    (only,), notes = together([apart, trained])
    assert only == trained
    assert notes == [
        "16 accelerators in 2 hosts: rates without communication are left out, because one with it is known"
    ]


def test_of_a_sweep_that_was_stopped_the_rate_is_that_of_the_best_so_far(tmp_path: Path) -> None:
    folder = ranked(tmp_path / "run", 4, 4000.0)
    assert points_of([folder], None)[0][0].notes == ()
    stored = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**stored, "status": "interrupted"}))
    assert "has not come to its end" in points_of([folder], None)[0][0].notes[0]
    (folder / "result.json").unlink()
    assert "has not come to its end" in points_of([folder], None)[0][0].notes[0]
    assert points_of([folder], "default")[0][0].notes == ()


def test_another_gpu_is_another_training(tmp_path: Path) -> None:
    folders = []
    for name, gpu in (("one", "Tesla V100"), ("two", "H100")):
        found = [replace(one, measurement=replace(one.measurement, versions={**one.measurement.versions, "gpu": gpu}))
                 for one in (CEILING, DEFAULT, TUNED) if one.measurement is not None]  # fmt: skip
        folders.append(sweep_folder(tmp_path / name, tuple(found)))
    with pytest.raises(UsageError, match=r"the GPU differs: Tesla V100 in .*one, H100 in .*two"):
        check_same(points_of(folders, None)[0])


def test_another_candidate(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path / "run")
    assert points_of([folder], "default")[0][0].samples_per_s == 640.0
    assert points_of([folder], "opencv-w2-p2-b64")[0][0].samples_per_s == 1240.0
    with pytest.raises(UsageError, match="no measured candidate opencv-w9"):
        points_of([folder], "opencv-w9")


def test_an_array_has_a_point_for_each_task_that_ended(tmp_path: Path) -> None:
    array = tmp_path / "array"
    ranked(array / "task-0", 1, 1200.0)
    ranked(array / "task-1", 2, 2300.0)
    tasks = [{"number": n, "label": f"ranks={2**n}", "words": ["sweep"]} for n in range(3)]
    (array / LAUNCH_FILE).write_text(json.dumps({"folder": str(array), "cwd": "/", "tasks": tasks}))
    found, left_out = points_of([array], None)
    assert [point.accelerators for point in found] == [1, 2]
    assert len(left_out) == 1
    assert left_out[0].startswith("task 2 (ranks=4): ")


def test_a_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path / "run")
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "kind": "watch"}))
    with pytest.raises(UsageError, match="a run of pipetune watch"):
        points_of([folder], None)


def table(path: Path, text: str) -> list[Point]:
    path.write_text(text)
    return table_points(path)


def test_a_table(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "GPUs, images/sec, low, high\n1, 100, 98, 103\n8,760,,\n")
    assert [(one.accelerators, one.hosts, one.samples_per_s, one.ci95) for one in found] == [
        (1, 0, 100.0, (98.0, 103.0)), (8, 0, 760.0, None),
    ]  # fmt: skip
    assert found[1].source.endswith("t.csv, line 3")
    assert [one.hosts for one in with_hosts(found, 4)] == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column accelerators"),
        ("accelerators,x\n1,2\n", "no column samples_per_s"),
        ("accelerators,rate\n", "no lines below"),
        ("accelerators,rate\n0,10\n", "line 2: accelerators is '0'"),
        ("accelerators,rate\n1.5,10\n", "line 2: accelerators is '1.5'"),
        ("accelerators,rate\n1,\n", "line 2: rate is ''"),
        ("accelerators,rate\n1,-3\n", "line 2: rate is '-3'"),
        ("accelerators,rate\n1,inf\n", "line 2: rate is 'inf'"),
        ("accelerators,hosts,rate\n1,2,5\n", "2 hosts have 1 accelerators"),
        ("accelerators,rate,low,high\n1,10,11,12\n", "11.0 to 12.0 does not hold the rate 10"),
        ("accelerators,rate,low,high\n1,10,9,\n", "does not hold the rate 10"),
        ("workers,rate\n1,10\n", "no column accelerators"),
        ('accelerators,rate\n1,"' + "x" * 200_000, "no CSV file"),
    ],
)
def test_what_is_no_table(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table(tmp_path / "t.csv", text)


def test_no_such_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        table_points(tmp_path / "t.csv")


def point(count: int, rate: float, **changes: Any) -> Point:
    return Point(**{"accelerators": count, "hosts": 1, "samples_per_s": rate, "ci95": None, "source": "x", **changes})


def test_repeats_are_one_point() -> None:
    (first, other), notes = together([
        point(1, 100.0, ci95=(95.0, 105.0)), point(2, 190.0), point(1, 110.0, ci95=(108.0, 112.0), source="y"),
        point(2, 200.0, ci95=(195.0, 205.0)),
    ])  # fmt: skip
    assert (first.samples_per_s, first.ci95, first.source) == (105.0, (95.0, 112.0), "x, y")
    assert (other.samples_per_s, other.ci95) == (195.0, None), "of one the interval is not known"
    assert notes == []


def test_of_different_loaders_the_fastest_is_shown() -> None:
    (only,), notes = together([point(8, 700.0, candidate="opencv-w1"), point(8, 900.0, candidate="opencv-w2")])
    assert only.samples_per_s == 900.0
    assert notes == ["8 accelerators: the fastest of 2 loaders is shown, opencv-w2"]


def test_rates_of_different_trainings_are_refused() -> None:
    one = point(1, 10.0, identity={"the model": "resnet50", "the folder of images": None})
    killed = point(2, 10.0, source="y", identity={"the model": "resnet50", "the folder of images": "/data"})
    check_same([one, killed])
    with pytest.raises(UsageError, match="the model differs: resnet50 in x, resnet18 in z"):
        check_same([one, killed, point(4, 10.0, source="z", identity={"the model": "resnet18"})])
    cpu, emulated = ({"the accelerator": pair} for pair in (("cpu", None), ("emulated", 100.0)))
    with pytest.raises(UsageError, match="the accelerator differs: cpu in x, emulated at 100/s in y"):
        check_same([point(1, 10.0, identity=cpu), point(2, 10.0, source="y", identity=emulated)])


def test_a_killed_sweep_and_a_finished_one_are_of_the_same_training(tmp_path: Path) -> None:
    finished = ranked(tmp_path / "one", 1, 1200.0)
    killed = ranked(tmp_path / "two", 2, 2300.0)
    (killed / "result.json").unlink()
    info = json.loads((killed / "run.json").read_text())
    info["workload"]["dataset"] = "/somewhere/" + str(info["workload"]["dataset"])
    info["workload"]["precision"] = "auto"  # as on a GPU; what came of it, those know who have measured
    (killed / "run.json").write_text(json.dumps(info))
    found, _ = points_of([finished, killed], None)
    check_same(found)
    assert [one.accelerators for one in found] == [1, 2]


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc-per-node=1 train.py --lr 1", "torchrun --nproc_per_node 8 train.py --lr 1",
        "torchrun --nnodes 2 --nproc-per-node=8 train.py --lr 1", "torchrun train.py --num-processes=3 --lr 1",
    ],
)  # fmt: skip
def test_of_a_script_the_number_of_ranks_does_not_count(command: str) -> None:
    assert points._without_ranks(command.split()) == ["torchrun", "train.py", "--lr", "1"]


def test_a_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("accelerators,rate\n1,2\n")
    with pytest.raises(UsageError, match=r"rates.csv is a file.*--table .*rates.csv"):
        points_of([tmp_path / "rates.csv"], None)


def test_a_host_with_more_accelerators_than_it_has_room_for() -> None:
    with pytest.raises(UsageError, match="--per-host 4: x has 8 accelerators in 1 host"):
        with_hosts([point(8, 100.0)], 4)
