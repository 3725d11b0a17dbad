from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipetune
from pipetune.diagnosis import causes
from pipetune.errors import UsageError
from pipetune.records.prediction import Prediction
from pipetune.records.set_up import SetUp
from pipetune.records.sweep import Failure, HostShare
from pipetune.runs import frames
from pipetune.runs.load import load
from tests.fakes import outcome
from tests.run_folders import (
    BEGAN_NS,
    CEILING,
    DEFAULT,
    IDLE_FRAC,
    PERIOD_S,
    STEPS,
    TIMED,
    TUNED,
    WARMUP,
    sweep_folder,
    watch_folder,
)
from tests.unit.samples import measured
from tests.watch_fakes import stall, verdict, window

DEFAULT_KEY, TUNED_KEY = DEFAULT.candidate.key, TUNED.candidate.key


@pytest.fixture
def sweep(tmp_path: Path) -> pipetune.Run:
    return load(sweep_folder(tmp_path / "run"))


def test_a_sweep_knows_its_candidates(sweep: pipetune.Run) -> None:
    assert (sweep.kind, sweep.problems) == ("sweep", ())
    assert sweep.candidates == ("ceiling", TUNED_KEY, DEFAULT_KEY)
    assert (sweep.recommended, sweep.default) == (TUNED_KEY, DEFAULT_KEY)
    assert sweep.usable_cores == 2.0


def test_its_text_is_short(sweep: pipetune.Run, tmp_path: Path) -> None:
    assert repr(sweep) == (
        f"<pipetune.Run: sweep {tmp_path / 'run'}, timelines ceiling, {TUNED_KEY}, {DEFAULT_KEY}, "
        f"recommended {TUNED_KEY}>"
    )
    (sweep.path / "result.json").unlink()
    assert "1 problems (see .problems)" in repr(load(sweep.path))


def test_the_frame_has_a_row_per_outcome_with_units_in_its_names(sweep: pipetune.Run) -> None:
    frame = sweep.frame()

    assert frame["role"].tolist() == ["ceiling", "baseline", "candidate"]
    assert frame["timeline"].tolist() == ["ceiling", DEFAULT_KEY, TUNED_KEY]
    assert frame["samples_per_s"].tolist() == [1250.0, 640.0, 1240.0]
    assert frame["samples_per_s_low"].tolist() == pytest.approx([1225.0, 627.2, 1215.2])
    assert frame["recommended"].tolist() == [False, False, True]
    assert np.isnan(frame["goodput"][0])
    assert frame["cause"].isna()[0]
    assert frame["cause"].tolist()[1:] == ["no_workers", "accelerator_bound"]
    assert frame["num_workers"].dtype == "int64"


def test_a_failure_is_a_row_without_numbers(tmp_path: Path) -> None:
    failed = outcome("dali", 1, failure=Failure(kind="killed", phase="timed", message="gone"))
    frame = load(sweep_folder(tmp_path / "run", [CEILING, DEFAULT, failed])).frame()

    last = frame.iloc[-1]
    assert (last["failure"], last["failure_message"]) == ("killed", "gone")
    assert np.isnan(last["samples_per_s"])
    assert np.isnan(last["steps"])


def test_steps_know_their_phase(sweep: pipetune.Run) -> None:
    steps = sweep.steps("default")

    assert steps["phase"].tolist() == ["warmup"] * WARMUP + ["timed"] * (STEPS - WARMUP)
    assert steps["time_s"].tolist()[:2] == pytest.approx([0.0, PERIOD_S])
    assert steps["end_s"].iloc[-1] == pytest.approx(STEPS * PERIOD_S)


def test_steps_after_the_last_whole_window_are_neither_timed_nor_stalls(tmp_path: Path) -> None:
    shorter = outcome("pillow", 0, rate=640.0, role="baseline", **TIMED | {"steps": 25})
    run = load(sweep_folder(tmp_path / "run", [CEILING, shorter, TUNED]))

    assert run.steps("default")["phase"].value_counts().to_dict() == {"timed": 25, "warmup": WARMUP, "rest": 5}
    assert run.stalls("default")["step"].max() == WARMUP + 24


def test_stalls_add_up_to_the_idle_time_of_the_measurement(sweep: pipetune.Run) -> None:
    stalls, measured = sweep.stalls("default"), DEFAULT.measurement
    assert measured is not None

    assert stalls["lost_s"].sum() == pytest.approx(IDLE_FRAC * measured.timed_s)
    assert (stalls["end_s"] - stalls["start_s"]).sum() == pytest.approx(IDLE_FRAC * measured.timed_s)
    assert set(stalls["cause"]) == {"no_workers"}
    assert sweep.seconds("default") == pytest.approx(measured.timed_s)


def test_readings_count_from_the_first_step(sweep: pipetune.Run) -> None:
    readings = sweep.readings()

    assert readings["time_s"].tolist()[:2] == pytest.approx([0.1, 0.2])
    assert readings["cores_used"].tolist()[1:] == pytest.approx([1.0] * 39)
    assert np.isnan(readings["cores_used"][0])
    assert sweep.zero_ns(TUNED_KEY) == BEGAN_NS


def test_a_repeated_candidate_is_known_by_its_newest_attempt(tmp_path: Path) -> None:
    again = outcome("opencv", 2, rate=1230.0, attempt=2, **TIMED)
    run = load(sweep_folder(tmp_path / "run", [CEILING, DEFAULT, TUNED, again]))

    assert run.recommended == f"{TUNED_KEY}-again2"
    assert run.outcome(f"{TUNED_KEY}-again2") == again
    assert run.frame()["recommended"].tolist() == [False, False, True, True]


def test_what_the_search_says_of_an_outcome_is_in_its_row(tmp_path: Path) -> None:
    disturbed = outcome("opencv", 2, rate=1230.0, other_cores=1.25, other_process="stress (7)", **TIMED)
    disturbed = replace(disturbed, block=1, why="beside its rivals")
    run = load(sweep_folder(tmp_path / "run", [CEILING, DEFAULT, TUNED, disturbed]))

    row = run.frame().iloc[-1]
    assert (row["block"], row["why"], row["other_cores"], row["other_process"]) == (
        1, "beside its rivals", 1.25, "stress (7)",
    )  # fmt: skip
    assert run.recommended == f"{TUNED_KEY}-block1"


def test_what_was_expected_of_an_outcome_is_in_its_row(tmp_path: Path) -> None:
    expected = Prediction(
        samples_per_s=1200.0, interval90=(1100.0, 1300.0), demand_samples_per_s=1250.0, bound_by="workers",
        next_bound_by="cores", kind="one_factor",
    )  # fmt: skip
    run = load(sweep_folder(tmp_path / "run", [CEILING, DEFAULT, replace(TUNED, predicted=expected)]))

    assert run.outcomes[-1].predicted == expected
    rates = run.frame()["predicted_samples_per_s"]
    assert rates.iloc[-1] == 1200
    assert rates.iloc[:-1].isna().all()


def test_a_candidate_that_is_not_there_is_reported_with_those_that_are(sweep: pipetune.Run) -> None:
    with pytest.raises(UsageError, match=f"no timeline nothing; there are: ceiling, {TUNED_KEY}, {DEFAULT_KEY}"):
        sweep.steps("nothing")


def test_an_empty_sweep_has_frames_with_columns(tmp_path: Path) -> None:
    run = load(sweep_folder(tmp_path / "run", [], result=False))

    assert "samples_per_s" in run.frame().columns
    assert run.frame().empty
    with pytest.raises(UsageError, match="no timeline; there are: none"):
        run.steps()


def two_windows() -> list[object]:
    second = verdict(cause=causes.HEALTHY, lost_frac=0.02, lost_ci95=(0.0, 0.04), shares=())
    return [window(), window(number=2, started_unix_s=1_700_000_010.0, verdicts=(second,))]


def test_a_watch_has_a_row_per_window_and_rank(tmp_path: Path) -> None:
    run = load(watch_folder(tmp_path / "run", two_windows(), [stall()]))  # type: ignore[arg-type]

    frame = run.frame()
    assert (run.kind, run.candidates, run.problems) == ("watch", ("main",), ())
    assert frame["cause"].tolist() == [causes.CPU_DECODE, causes.HEALTHY]
    assert frame["lost_frac"].tolist() == [0.6, 0.02]
    assert frame[f"share_{causes.CPU_DECODE}"].tolist() == [0.9, 0.0]
    assert (frame["started"].diff().dt.total_seconds().iloc[1]) == 10.0
    assert len(run.readings()) == 40
    assert run.steps().empty
    assert run.stalls()[["lost_s", "cause"]].to_numpy().tolist() == [[1.9, causes.CPU_DECODE]]
    assert run.seconds() == pytest.approx(20.0)


def test_stalls_of_a_watch_belong_to_their_rank(tmp_path: Path) -> None:
    ranks = window(verdicts=(verdict(rank=1), verdict(rank=0)))
    run = load(watch_folder(tmp_path / "run", [ranks], [stall(rank=1), stall(rank=0), stall(rank=1)]))
    (run.path / "timelines" / "rank0.jsonl").write_bytes(b"")
    run = load(run.path)

    assert run.candidates == ("rank0", "rank1")
    assert (len(run.stalls("rank0")), len(run.stalls("rank1"))) == (1, 2)
    assert run.frame()["rank"].tolist() == [1, 0]


def test_of_two_outcomes_of_one_name_the_newest_counts(tmp_path: Path) -> None:
    bad = outcome("opencv", 2, failure=Failure(kind="bad_image", phase="timed", message="x"))
    broken = outcome("pillow", 0, role="baseline", failure=Failure(kind="killed", phase="timed", message="x"))
    run = load(sweep_folder(tmp_path / "run", [CEILING, bad, TUNED, DEFAULT, broken]))

    assert run.outcome(TUNED_KEY) == TUNED
    assert run.default == DEFAULT_KEY
    assert run.frame()["recommended"].tolist() == [False, False, True, False, False]


def test_cores_are_computed_from_the_clock_where_readings_were_thinned_out(tmp_path: Path) -> None:
    path = sweep_folder(tmp_path / "run")
    file = path / "timelines" / f"{TUNED_KEY}.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    readings = [line for line in lines if '"reading"' in line]
    file.write_text("".join(readings[::10]))

    assert load(path).readings()["cores_used"].tolist()[1:] == pytest.approx([1.0] * 3)


def test_a_watch_without_a_window_has_an_empty_frame(tmp_path: Path) -> None:
    run = load(watch_folder(tmp_path / "run", [], end=False))

    assert run.frame().empty
    assert "lost_frac" in run.frame().columns


def test_a_timeline_is_read_once_for_all_its_frames(sweep: pipetune.Run) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = sweep.columns(DEFAULT_KEY)
        sweep.steps("default"), sweep.readings("default"), sweep.stalls("default")
        assert sweep.columns(DEFAULT_KEY) is first


def test_a_frame_takes_a_measurement_that_has_every_value() -> None:
    frame = frames.outcome_frame([measured()], usable_cores=2.0, recommended=None)
    assert frame["step_cores"].dtype == frame["gpu_clock_mhz"].dtype == "float64"
    assert frame["gpu_util_low"].notna().all()


def test_the_stages_of_the_set_up_and_the_ends_of_the_energy_are_columns() -> None:
    assert TUNED.measurement is not None
    told = replace(
        TUNED.measurement, set_up=SetUp(context_s=2.0), energy_j_per_1000_samples=300.0, energy_ci95=(280.0, 320.0)
    )
    frame = frames.outcome_frame([replace(TUNED, measurement=told), DEFAULT], usable_cores=2.0, recommended=None)
    assert frame["set_up_context_s"].iloc[0] == 2.0
    assert frame["set_up_context_s"].isna().tolist() == [False, True]
    assert frame["set_up_model_s"].isna().all()
    ends = frame[["energy_j_per_1000_samples_low", "energy_j_per_1000_samples_high"]].iloc[0]
    assert ends.tolist() == [280.0, 320.0]
    assert not {"set_up", "energy_ci95"} & set(frame.columns)


def test_hosts_that_measured_together_are_rows(tmp_path: Path) -> None:
    share = HostShare(
        host=1, name="n2", samples_per_s=1240.0, ci95=(1200.0, 1280.0), goodput=0.9, data_wait_frac=0.1,
        accelerator_idle_frac=0.1, cores_used=1.5, read_bytes_per_s=None, together_frac=0.97,
    )  # fmt: skip
    assert TUNED.measurement is not None
    tuned = replace(TUNED, measurement=replace(TUNED.measurement, hosts=(replace(share, host=0, name="n1"), share)))
    frame = pipetune.load(sweep_folder(tmp_path / "run", (CEILING, DEFAULT, tuned))).hosts()
    assert frame["name"].tolist() == ["n1", "n2"]
    assert frame[["samples_per_s_low", "samples_per_s_high"]].iloc[1].tolist() == [1200.0, 1280.0]
    assert "ci95" not in frame
    assert pipetune.load(sweep_folder(tmp_path / "one")).hosts().empty
