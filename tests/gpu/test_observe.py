"""``pipetune.observe`` around a loop that trains on a CUDA device: what the events say against what the loop does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import pipetune

torch = pytest.importorskip("torch", reason="the CUDA path is torch")


def batches(count: int, pause_s: float) -> Iterator[Any]:
    for _ in range(count):
        time.sleep(pause_s)
        yield torch.zeros(64, 1)


def train(pause_s: float, *, size: int = 4096, products: int = 20) -> pipetune.Run:
    """A loop whose step is so many products of matrices, after a warm-up outside of it."""
    a = torch.randn(size, size, device="cuda")
    for _ in range(5):
        a @ a
    torch.cuda.synchronize()
    with pipetune.observe(batches(40, pause_s), save=False) as seen:
        for _ in seen:
            for _ in range(products):
                a @ a
    return seen.run


def test_a_device_that_is_kept_fed_is_never_idle() -> None:
    run = train(0.0)

    assert run.frame()["accelerator_idle_frac"][0] < 0.05
    assert (run.steps()["compute_s"] > 0).all()
    assert run.readings()["gpu_util_pct"].notna().any()


def test_a_device_that_waits_is_idle_for_as_long_as_the_loop_waits() -> None:
    fed = train(0.0).steps()["compute_s"].median()
    pause_s = 4 * fed
    run = train(float(pause_s))

    steps = run.steps()[5:]
    # While the loop waits, the device works off the step before and is idle for the rest.
    assert steps["idle_s"].median() == pytest.approx(pause_s - fed, rel=0.15)
    assert steps["compute_s"].median() == pytest.approx(fed, rel=0.15)
    assert set(run.stalls()["cause"]) == {"data_wait"}


def test_steps_lie_on_the_hosts_clock() -> None:
    began = time.monotonic_ns()
    run = train(0.002)
    ended = time.monotonic_ns()

    columns = run.columns("main").steps
    assert (columns["t_end_ns"] > began).all()
    assert (columns["t_end_ns"] < ended + 10**7).all()
    assert (columns["t_end_ns"][1:] >= columns["t_end_ns"][:-1]).all()
