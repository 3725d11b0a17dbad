from __future__ import annotations

import math
import random

import pytest

from pipetune.errors import UsageError
from pipetune.scaling.price import cost_of, expected_s, parse_losses, parse_price


def test_the_published_training_of_fifty_hours() -> None:
    """ImageNet on one p2.16xlarge: $720 on demand, about $80 where it can be taken away."""
    assert cost_of(50 * 3600, 1, parse_price("--price", "$14.40/h")[0]) == pytest.approx(720)
    assert cost_of(50 * 3600, 1, parse_price("--spot", "1.60/h")[0]) == pytest.approx(80)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("14.40/h", (14.4, "")), ("$14.40/h", (14.4, "$")), ("14.40 EUR/h", (14.4, "EUR")), ("€3 per hour", (3.0, "€")),
        (" .5 / h ", (0.5, "")),
    ],
)  # fmt: skip
def test_prices(text: str, value: tuple[float, str]) -> None:
    assert parse_price("--price", text) == value


@pytest.mark.parametrize("text", ["14.40", "0/h", "-1/h", "$1 EUR/h", "x/h", "", "1e9/h", "14,40/h", "1/s"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(UsageError, match="--spot"):
        parse_price("--spot", text)


def test_shares_of_hosts_that_are_lost() -> None:
    assert parse_losses("5%/h") == pytest.approx(0.05)
    assert parse_losses("0 % / hour") == 0
    for text in ("5", "5%", "100%/h", "-1%/h", "five"):
        with pytest.raises(UsageError, match="--interruptions"):
            parse_losses(text)


def test_nothing_is_lost_where_no_host_is() -> None:
    assert expected_s(7200, 8, 0.0, 600, 300) == 7200


def test_what_is_lost_is_what_chance_takes() -> None:
    """Beside a simulation: a training of ten hours on four hosts, each lost with 20 % per hour."""
    work_s, hosts, lost, checkpoint_s, restart_s = 36_000.0, 4, 0.2, 1800.0, 300.0
    rate_per_s = -hosts * math.log(1 - lost) / 3600
    chance = random.Random(0)

    def simulated() -> float:
        now, done = 0.0, 0.0
        next_loss = chance.expovariate(rate_per_s)
        while done < work_s:
            if now + checkpoint_s <= next_loss:
                now, done = now + checkpoint_s, done + checkpoint_s
                continue
            now = next_loss
            next_loss = now + chance.expovariate(rate_per_s)
            while now + restart_s > next_loss:  # lost again while it begins again
                now = next_loss
                next_loss = now + chance.expovariate(rate_per_s)
            now += restart_s
        return now

    runs = 2000
    mean = sum(simulated() for _ in range(runs)) / runs
    assert expected_s(work_s, hosts, lost, checkpoint_s, restart_s) == pytest.approx(mean, rel=0.02)


def test_rarer_checkpoints_and_more_hosts_lose_more() -> None:
    def hours(hosts: int, checkpoint_s: float) -> float:
        return expected_s(36_000, hosts, 0.05, checkpoint_s, 300) / 3600

    assert 10 < hours(1, 600) < hours(1, 3600) < hours(1, 36_000)
    assert hours(1, 3600) < hours(16, 3600)
    assert hours(1, 36_000) == hours(1, 1e9), "no checkpoint is needed after the end"


def test_a_training_that_never_ends() -> None:
    assert expected_s(36_000, 1_000_000, 0.99, 36_000, 300) == math.inf
    assert expected_s(9e6, 16, 0.05, 360_000, 300) == math.inf, "an epoch of 100 hours, in which 16 hosts stay"
