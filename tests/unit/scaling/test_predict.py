from __future__ import annotations

from typing import Any

import pytest

from pipetune.records.prediction import Prediction
from pipetune.scaling.points import Point
from pipetune.scaling.predict import (
    ERROR_PER_DOUBLING,
    UNKNOWN_COMMUNICATION,
    Host,
    across,
    doublings,
    measured_host,
    predicted_host,
    ring_s,
    slowest_of,
)


def point(count: int, hosts: int, rate: float, **changes: Any) -> Point:
    return Point(
        **{"accelerators": count, "hosts": hosts, "samples_per_s": rate, "ci95": None, "source": "x", **changes}
    )


def host(waiting: float = 0.0) -> Host:
    found = measured_host([point(4, 1, 400.0, others_wait_frac=waiting)], 4)
    assert found is not None
    return found


def test_the_largest_of_many_lies_higher() -> None:
    """Expected largest of n standard normal values (Harter, "Expected values of normal order statistics", 1961)."""
    assert slowest_of(1) == 0
    for count, expected in ((2, 0.5642), (8, 1.4236), (64, 2.3437), (256, 2.8240)):
        assert slowest_of(count) == pytest.approx(expected, rel=0.06)


def test_without_a_run_across_hosts_communication_is_not_known() -> None:
    found = across(host(), [], 4)
    assert found.samples_per_s == pytest.approx(1600)
    assert found.communication_frac is None
    low, high = found.interval90
    assert low < 1600 * (1 - UNKNOWN_COMMUNICATION * 3 / 4) < high
    assert high - 1600 < 1600 - low


def test_a_ring_is_fitted_to_the_runs_across_hosts() -> None:
    # A sample takes each of 4 accelerators 10 ms on one host, and 4 ms (H - 1)/H more on H hosts.
    def rate(hosts: int) -> float:
        return 4 * hosts / (0.010 + 0.004 * (hosts - 1) / hosts)

    points = [point(8, 2, rate(2)), point(16, 4, rate(4))]
    assert ring_s(host(), points) == pytest.approx(0.004)
    found = across(host(), points, 16)
    assert found.samples_per_s == pytest.approx(rate(16))
    assert found.communication_frac == pytest.approx(0.00375 / 0.01375)
    assert found.source == "one host, as measured, and 16 accelerators in 4 hosts"
    half = (found.interval90[1] - found.interval90[0]) / 2 / found.samples_per_s
    assert half == pytest.approx(ERROR_PER_DOUBLING * 2**0.5)


def test_hosts_that_are_faster_together_than_alone_cost_nothing() -> None:
    assert ring_s(host(), [point(8, 2, 900.0)]) == 0.0


def test_more_accelerators_wait_longer_for_the_slowest() -> None:
    found = across(host(0.1), [], 64)
    each_s = 0.010 + 0.1 * 0.010 * (slowest_of(256) / slowest_of(4) - 1)
    assert found.samples_per_s == pytest.approx(256 / each_s)
    assert found.others_wait_frac is not None
    assert found.others_wait_frac > 0.1
    assert found.samples_per_s < across(host(), [], 64).samples_per_s


def test_what_is_not_known_is_not_nothing() -> None:
    unknown = measured_host([point(4, 1, 400.0, others_wait_frac=None)], 4)
    assert unknown is not None
    assert across(unknown, [], 4).others_wait_frac is None
    prediction = Prediction(samples_per_s=800.0, interval90=(700.0, 900.0), demand_samples_per_s=900.0,
                            bound_by="cores", next_bound_by=None, kind="extrapolated")  # fmt: skip
    from_two = predicted_host(prediction, 8, point(2, 1, 200.0, others_wait_frac=0.05))
    assert from_two.others_wait_frac == pytest.approx(0.05 * slowest_of(8) / slowest_of(2))
    assert predicted_host(prediction, 8, point(1, 1, 100.0, others_wait_frac=0.0)).others_wait_frac is None


def test_hosts_that_are_not_full_do_not_count() -> None:
    assert ring_s(host(), [point(2, 2, 150.0)]) is None


def test_the_hosts_own_interval_is_kept() -> None:
    sure = measured_host([point(4, 1, 400.0, ci95=(380.0, 420.0))], 4)
    assert sure is not None
    low, high = across(sure, [point(8, 2, 800.0)], 2).interval90
    assert (high - low) / 2 / 800 == pytest.approx(0.05 * 1.645 / 1.96)
    assert measured_host([point(2, 1, 200.0)], 4) is None


def test_which_numbers_are_predicted() -> None:
    assert doublings(8, 64) == [1, 2, 4, 8, 16, 32, 64]
    assert doublings(6, 32) == [1, 2, 4, 6, 12, 24]
    assert doublings(1, 4) == [1, 2, 4]
    assert doublings(512, 256) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
