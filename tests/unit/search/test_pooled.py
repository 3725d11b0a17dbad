from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.records.sweep import Failure, Goal, HostShare, Outcome, RankShare
from pipetune.registry import SCRIPT
from pipetune.search.pooled import at_present_speed, is_inconclusive, latest, merged, pool, present_speed
from tests.fakes import outcome

FAILED = Failure(kind="crashed", phase="open", message="x")
GOAL = Goal(target=0.9, metric="goodput")


def in_block(block: int, rate: float, workers: int = 2) -> Outcome:
    return replace(outcome(workers=workers, rate=rate), block=block)


def rate_of(found: Outcome) -> float:
    assert found.measurement is not None
    return found.measurement.samples_per_s


def test_blocks_are_merged_and_replace_a_first_measurement_that_met_the_goal() -> None:
    found = latest([outcome(rate=1200), in_block(1, 1000), outcome(workers=4, rate=700), in_block(2, 1100)])
    two = found["opencv-w2-p2-b64"].measurement
    assert two is not None
    assert two.samples_per_s == pytest.approx(1050)
    assert two.goodput == pytest.approx(1050 / 1250)
    # As wide as they are apart: more than 2 % to either side, narrower by the root of two.
    assert two.ci95 == pytest.approx((1000, 1100))
    close = latest([in_block(1, 1000), in_block(2, 1010)])["opencv-w2-p2-b64"].measurement
    assert close is not None
    assert close.ci95 == pytest.approx((1005 * (1 - 0.02 / 2**0.5), 1005 * (1 + 0.02 / 2**0.5)))
    assert rate_of(found["opencv-w4-p2-b64"]) == 700
    # The median of three scatters 1.16 times as much as their mean.
    three = latest([in_block(block, 1000) for block in (1, 2, 3)])["opencv-w2-p2-b64"].measurement
    assert three is not None
    assert three.ci95 == pytest.approx((1000 * (1 - 0.02 * 1.2 / 3**0.5), 1000 * (1 + 0.02 * 1.2 / 3**0.5)))


def test_a_first_measurement_that_missed_the_goal_is_merged() -> None:
    missed, lucky = outcome(rate=1100), in_block(1, 1240)  # 1,125/s are asked for

    def chosen_by(*outcomes: Outcome) -> float:
        return rate_of(pool(outcomes, GOAL)["opencv-w2-p2-b64"])

    assert chosen_by(missed, lucky) == 1170
    # Of three, one that is far off decides nothing.
    assert chosen_by(missed, lucky, in_block(2, 1110)) == 1110
    # One that was repeated because the machine changed speed is gone.
    assert chosen_by(missed, outcome(rate=1200, attempt=2), lucky) == 1240
    assert chosen_by(outcome(rate=1200), lucky) == 1240
    # What is stated of it was measured beside its rivals.
    assert rate_of(latest([missed, lucky])["opencv-w2-p2-b64"]) == 1240


def test_whether_it_missed_is_decided_by_the_measured_rate() -> None:
    """It met the goal; the machine has become slower since."""

    def at(speed: float, found: Outcome) -> Outcome:
        assert found.measurement is not None
        return replace(found, measurement=replace(
            found.measurement, machine_speed_before=speed, machine_speed_after=speed, accelerator_idle_frac=0.1
        ))  # fmt: skip

    outcomes = [at(100, outcome(rate=1200)), *(at(85, outcome("pillow", workers, rate=300)) for workers in (1, 2, 4))]
    found = pool([*outcomes, at(85, in_block(1, 1130))], GOAL)["opencv-w2-p2-b64"]
    assert rate_of(found) == 1130


def test_a_failed_block_replaces_nothing() -> None:
    failed = replace(outcome(failure=FAILED), block=2)
    found = latest([in_block(1, 1000), failed])
    assert rate_of(found["opencv-w2-p2-b64"]) == 1000
    assert merged([failed]) is failed


def test_failed_in_more_than_half_is_failed() -> None:
    fails = [replace(outcome(failure=FAILED), block=block) for block in (1, 2)]
    assert latest([outcome(rate=1000), fails[0]])["opencv-w2-p2-b64"].measurement is not None
    assert latest([outcome(rate=1000), *fails])["opencv-w2-p2-b64"] is fails[1]


def at(speed: float, rate: float, workers: int, idle: float = 0.5) -> Outcome:
    return outcome(
        workers=workers, rate=rate, machine_speed_before=speed, machine_speed_after=speed, accelerator_idle_frac=idle
    )


def test_a_loaders_rate_follows_the_machines_speed() -> None:
    before = [at(200, 600, 1), at(200, 1250, 8, idle=0.0)]
    after = [at(100, 400, 2), at(101, 450, 3), at(99, 480, 4)]
    assert present_speed(before + after) == 100
    found = {key: rate_of(o) for key, o in pool(before + after, GOAL).items()}
    assert found["opencv-w1-p2-b64"] == pytest.approx(300)
    # Nobody knows how much room it had left: half of the change is assumed, and the interval says so.
    fed = pool(before + after, GOAL)["opencv-w8-p2-b64"].measurement
    assert fed is not None
    assert fed.samples_per_s == pytest.approx(1250 * 0.75)
    assert fed.goodput_ci95 is not None
    assert fed.goodput_ci95[0] < 0.65
    assert fed.goodput_ci95[1] > 0.88
    assert found["opencv-w2-p2-b64"] == 400
    slow = pool(before + after, GOAL)["opencv-w1-p2-b64"].measurement
    assert slow is not None
    assert slow.gpu_util_pct == pytest.approx(24)  # from 600 of 1,250


def test_the_rate_of_a_loader_that_waits_does_not_follow_the_machines_speed() -> None:
    """It uses a tenth of a core, or half of one."""
    after = [at(100, 400, 2), at(101, 450, 3), at(99, 480, 4)]

    def rate_now(cores: float) -> float:
        first = at(200, 600, 1)
        assert first.measurement is not None
        first = replace(first, measurement=replace(first.measurement, cores_used=cores))
        return rate_of(pool([first, *after], GOAL)["opencv-w1-p2-b64"])

    assert rate_now(0.1) == 600
    assert rate_now(0.5) == pytest.approx(450)


def test_a_corrected_rate_stays_below_the_ceiling() -> None:
    found = pool([at(100, 1000, 1, idle=0.2), at(200, 400, 2), at(200, 450, 3), at(200, 480, 4)], GOAL)
    assert rate_of(found["opencv-w1-p2-b64"]) == pytest.approx(1250)


def fast_and_slow(cpu_speeds: tuple[float, float]) -> Outcome:
    """What is known of the first candidate, measured at full speed, when the machine runs at half of it."""

    def seen(speed: float, cpu_speed: float, workers: int) -> Outcome:
        found = at(speed, 600, workers)
        assert found.measurement is not None
        m = replace(found.measurement, machine_cpu_speed=cpu_speed, cpu_s_per_1000_samples=2.0, cores_used=1.2)
        return replace(found, measurement=m)

    first, then = cpu_speeds
    return pool([seen(200, first, 1), *(seen(100, then, workers) for workers in (2, 3, 4))], GOAL)["opencv-w1-p2-b64"]


def test_other_processes_change_no_cpu_time() -> None:
    shared = fast_and_slow((150, 148)).measurement
    assert shared is not None
    assert shared.samples_per_s == pytest.approx(300)
    assert shared.cpu_s_per_1000_samples == 2.0
    assert shared.cores_used == pytest.approx(0.6)


def test_cpu_time_follows_the_clock() -> None:
    slow = fast_and_slow((150, 75)).measurement
    assert slow is not None
    assert slow.samples_per_s == pytest.approx(300)
    assert slow.cpu_s_per_1000_samples == pytest.approx(4.0)
    assert slow.cores_used == pytest.approx(1.2)


def test_cores_are_fewer_at_a_faster_clock() -> None:
    slow = at(120, 1250, 2, idle=0.0).measurement
    assert slow is not None
    slow = replace(slow, machine_cpu_speed=90.0, cores_used=1.67, cpu_s_per_1000_samples=1.67 / 1.25)
    others = [at(200, 700, workers) for workers in (1, 4, 8)]
    others = [replace(o, measurement=replace(o.measurement, machine_cpu_speed=150.0)) for o in others if o.measurement]
    found = pool([replace(outcome(), measurement=slow), *others], GOAL)["opencv-w2-p2-b64"].measurement
    assert found is not None
    assert found.samples_per_s == pytest.approx(1250)
    assert found.cores_used == pytest.approx(1.0, rel=0.01)


def test_scatter_of_the_speed_is_no_change() -> None:
    outcomes = [at(speed, 500, workers) for workers, speed in enumerate((200, 190, 210, 195, 188), start=1)]
    assert at_present_speed(outcomes) == outcomes
    assert present_speed(outcomes[:3]) is None


def test_a_target_inside_the_interval_may_be_reached_by_chance() -> None:
    for goodput, inside in ((0.89, True), (0.9, True), (0.91, True), (0.93, False), (0.87, False)):
        m = outcome(rate=1250 * goodput).measurement
        assert m is not None
        assert is_inconclusive(m, GOAL) == inside, goodput
        nvml = replace(GOAL, metric="nvml")
        assert not is_inconclusive(m, nvml)  # stored before utilisation had an interval
        assert is_inconclusive(replace(m, gpu_util_ci95=(98 * goodput, 102 * goodput)), nvml) == inside


def test_utilisation_in_blocks_is_known_better() -> None:
    one = in_block(1, 1000).measurement
    assert one is not None
    blocks = [
        replace(in_block(number, 1000), measurement=replace(one, gpu_util_pct=80.0, gpu_util_ci95=(74.0, 86.0)))
        for number in (1, 2)
    ]
    found = latest(blocks)["opencv-w2-p2-b64"].measurement
    assert found is not None
    assert found.gpu_util_ci95 == pytest.approx((80 - 6 / 2**0.5, 80 + 6 / 2**0.5))


def test_a_repeat_in_a_block_replaces_the_drifted_one() -> None:
    again = replace(in_block(1, 1000), attempt=2)
    assert rate_of(latest([in_block(1, 500), again])["opencv-w2-p2-b64"]) == 1000


def test_the_defaults_first_measurement_is_merged() -> None:
    first = outcome("pillow", 0, rate=600, role="baseline")
    second = replace(outcome("pillow", 0, rate=400, role="baseline"), block=1)
    both = latest([first, second])["pillow-w0-p0-b64"].measurement
    assert both is not None
    assert both.samples_per_s == 500
    assert both.ci95 == pytest.approx((400, 600))


def test_of_memory_the_most_counts() -> None:
    def with_memory(block: int, memory: int | None) -> Outcome:
        found = in_block(block, 1000)
        assert found.measurement is not None
        return replace(found, measurement=replace(found.measurement, pss_bytes=memory))

    def merged_memory(*memory: int | None) -> int | None:
        both = merged([with_memory(number, pss) for number, pss in enumerate(memory, start=1)]).measurement
        assert both is not None
        return both.pss_bytes

    assert merged_memory(3 * 10**9, 2 * 10**9) == 3 * 10**9
    assert merged_memory(3 * 10**9, None) == 3 * 10**9
    assert merged_memory(None, None) is None


def test_what_the_ranks_did_in_several_blocks_are_their_medians() -> None:
    def with_ranks(block: int, *rates: float) -> Outcome:
        shares = tuple(
            RankShare(
                rank=rank, samples_per_s=rate, goodput=rate / 100, data_wait_frac=0.1 * block,
                accelerator_idle_frac=0.0, others_wait_frac=0.0,
            )
            for rank, rate in enumerate(rates)
        )  # fmt: skip
        one = outcome("opencv", 1, 2, rate=sum(rates), ceiling=200.0, ranks=shares, others_wait_frac=0.1 * block)
        return replace(one, block=block)

    three = [with_ranks(1, 40.0, 80.0), with_ranks(2, 50.0, 60.0), with_ranks(3, 60.0, 70.0)]
    both = merged(three).measurement
    assert both is not None
    assert [share.samples_per_s for share in both.ranks] == [50.0, 70.0]
    assert [share.goodput for share in both.ranks] == [0.5, 0.7]
    assert both.others_wait_frac == pytest.approx(0.2)
    other_ranks = merged([three[0], with_ranks(2, 50.0, 60.0, 70.0)]).measurement
    assert other_ranks is not None
    assert [share.samples_per_s for share in other_ranks.ranks] == [50.0, 60.0, 70.0]


def test_what_the_hosts_did_in_several_blocks_are_their_medians() -> None:
    def with_hosts(block: int, rate: float, read: float | None) -> Outcome:
        share = HostShare(
            host=0, name="n1", samples_per_s=rate, ci95=(rate - block, rate + block), goodput=None, data_wait_frac=0.1,
            accelerator_idle_frac=0.0, cores_used=1.0, read_bytes_per_s=read, together_frac=1.0,
        )  # fmt: skip
        return replace(outcome("opencv", 1, 2, rate=rate, ceiling=200.0, hosts=(share,)), block=block)

    both = merged([with_hosts(1, 40.0, 5.0), with_hosts(2, 50.0, None), with_hosts(3, 60.0, 7.0)]).measurement
    assert both is not None
    (share,) = both.hosts
    assert (share.name, share.host, share.samples_per_s) == ("n1", 0, 50.0)
    assert share.ci95 == (48.0, 52.0)
    assert share.read_bytes_per_s is None, "one of them does not know"


@pytest.mark.parametrize(
    ("starts", "fits"),
    [
        ("+-", False),  # measured in the running script, and failed in a start of its own
        ("+-F", True),  # another start had it
        ("+F-", False),
        ("F-", False),
        ("++", True),
    ],
)
def test_settings_with_which_a_start_of_the_script_failed_are_unfit(starts: str, fits: bool) -> None:
    """``+``: measured in the running script; ``F``: in a start of its own; ``-``: that failed."""
    own = replace(outcome(rate=1000).candidate, backend=SCRIPT.name)
    outcomes = [
        replace(
            outcome(rate=1000),
            candidate=own,
            block=number,
            forked=sign == "+",
            **({"measurement": None, "failure": FAILED} if sign == "-" else {}),
        )
        for number, sign in enumerate(starts)
    ]
    assert (latest(outcomes)[own.key].failure is None) is fits
