from __future__ import annotations

import numpy as np
import pytest

from pipetune.diagnosis.causes import CPU_DECODE, NOT_INPUT
from pipetune.runs.stalls import stalls_of_steps
from pipetune.store.columns import columns_of
from tests.run_folders import BEGAN_NS, PERIOD_S, WORK_S, steps


def test_each_idle_time_before_a_step_is_one_stall_and_they_add_up() -> None:
    columns = columns_of(steps=steps(5)).steps

    found = stalls_of_steps(columns, CPU_DECODE)

    assert found["step"].tolist() == [1, 2, 3, 4]
    assert found["lost_s"].sum() == pytest.approx(columns["idle_s"].sum(), abs=1e-12)
    assert (found["t_end_ns"] - found["t_start_ns"]).sum() == round(columns["idle_s"].sum() * 1e9)
    # The accelerator ends a step at the period's end and is idle from there until it begins the next one.
    assert found["t_start_ns"][0] == BEGAN_NS + round(PERIOD_S * 1e9)
    assert found["t_end_ns"][0] == BEGAN_NS + round((2 * PERIOD_S - WORK_S) * 1e9)
    assert set(found["cause"]) == {CPU_DECODE}


def test_only_the_timed_steps_count() -> None:
    found = stalls_of_steps(columns_of(steps=steps(10)).steps, "x", slice(4, 7))

    assert found["step"].tolist() == [4, 5, 6]


def test_a_stall_that_the_loop_did_not_wait_in_is_not_the_inputs() -> None:
    columns = columns_of(steps=steps(4)).steps
    columns["data_wait_s"][2] = 0.01  # its batch was there, and the accelerator was idle for 40 ms all the same

    assert stalls_of_steps(columns, "x")["cause"].tolist() == ["x", NOT_INPUT, "x"]


def test_copies_belong_to_the_step_and_not_to_the_stall() -> None:
    columns = columns_of(steps=steps(2)).steps
    columns["h2d_s"] = np.array([np.nan, 0.02])
    columns["compute_s"][1] = WORK_S - 0.02

    assert stalls_of_steps(columns, "x")["t_end_ns"][0] == BEGAN_NS + round((2 * PERIOD_S - WORK_S) * 1e9)


def test_no_steps_and_no_idle_time_are_no_stalls() -> None:
    assert stalls_of_steps(columns_of().steps, "x")["lost_s"].tolist() == []
    busy = columns_of(steps=steps(5, work_s=PERIOD_S)).steps
    assert stalls_of_steps(busy, "x")["step"].tolist() == []


def test_waiting_for_other_ranks_belongs_to_the_step_before_and_not_to_a_stall() -> None:
    columns = columns_of(steps=steps(3)).steps
    columns["others_s"] = np.array([0.0, 0.02, np.nan])  # an earlier version has not written it
    columns["compute_s"][1] = WORK_S - 0.02

    found = stalls_of_steps(columns, CPU_DECODE)
    assert found["t_end_ns"][0] == BEGAN_NS + round((2 * PERIOD_S - WORK_S) * 1e9)
    assert set(found["cause"]) == {CPU_DECODE}


def test_a_wait_for_the_batch_that_came_before_the_wait_for_other_ranks_is_the_inputs() -> None:
    """Of a real device: it was idle without a batch, then it had one and waited for the others."""
    columns = columns_of(steps=steps(2)).steps
    lost_s = float(columns["idle_s"][1])
    columns["others_s"][0] = 0.03  # stored with the step before
    columns["t_start_ns"][1] -= round(0.03 * 1e9)  # the batch was asked for, and there, by so much earlier

    found = stalls_of_steps(columns, CPU_DECODE)
    assert found["lost_s"][0] == pytest.approx(lost_s)
    assert found["cause"].tolist() == [CPU_DECODE]
