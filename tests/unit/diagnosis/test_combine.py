from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.combine import whole_run, worst_first
from pipetune.records.observation import LOADER_WAIT
from pipetune.records.watch import CauseShare, Verdict
from tests.watch_fakes import verdict


def _verdict(lost: float | None, seconds: float = 10.0, **shares_and: Any) -> Verdict:
    shares = shares_and.pop("shares", {causes.CPU_DECODE: 1.0})
    changes: dict[str, Any] = {
        "seconds": seconds,
        "lost_frac": lost,
        "util_frac": None if lost is None else 1 - lost,
        "lost_ci95": None if lost is None else (max(0.0, lost - 0.05), min(1.0, lost + 0.05)),
        "cause": max(shares, key=lambda cause: shares[cause], default=causes.HEALTHY),
        "shares": tuple(CauseShare(cause=name, share=share, ci95=(0.0, 1.0)) for name, share in shares.items()),
    }
    return verdict(**(changes | shares_and))


def _whole(*verdicts: Verdict) -> Verdict:
    whole = whole_run(verdicts)
    assert whole is not None
    return whole


def _shares(of: Verdict) -> dict[str, float]:
    return {share.cause: share.share for share in of.shares}


def test_no_windows_are_no_verdict() -> None:
    assert whole_run([]) is None


def test_windows_of_which_nothing_is_known_give_the_newest() -> None:
    open_ = [_verdict(None, cause=causes.NOT_STARTED, pid=pid) for pid in (1, 2)]

    assert whole_run(open_) == open_[1]


def test_loss_is_weighted_by_time() -> None:
    whole = _whole(_verdict(0.9, 10), _verdict(0.1, 30))

    assert whole.lost_frac == pytest.approx(0.3)
    assert whole.util_frac == pytest.approx(0.7)
    assert whole.seconds == 40


def test_shares_are_weighted_by_lost_time() -> None:
    whole = _whole(_verdict(0.8, 10), _verdict(0.1, 20, shares={causes.DISK: 1.0}))

    assert _shares(whole) == pytest.approx({causes.CPU_DECODE: 0.8, causes.DISK: 0.2})
    assert whole.cause == causes.CPU_DECODE
    assert [(share.cause, round(share.share, 2)) for share in whole.shares] == [
        (causes.CPU_DECODE, 0.8),
        (causes.DISK, 0.2),
    ]


def test_shares_sum_to_one_where_some_windows_are_healthy() -> None:
    whole = _whole(
        _verdict(0.4, shares={causes.CPU_DECODE: 0.7, causes.DISK: 0.3}),
        _verdict(0.02, shares={}, cause=causes.HEALTHY),
        _verdict(0.3, shares={causes.NETWORK: 1.0}),
    )

    assert sum(_shares(whole).values()) == pytest.approx(1.0)
    assert [share.share for share in whole.shares] == sorted((s.share for s in whole.shares), reverse=True)
    assert all(share.ci95[0] <= share.share <= share.ci95[1] for share in whole.shares)


@pytest.mark.parametrize("losses", [[0.0] * 30, [0.01] * 30, [1.0] * 30, [0.5] * 5, [0.0, 1.0], [0.02, 0.9, 0.4]])
def test_the_interval_holds_the_loss(losses: list[float]) -> None:
    whole = _whole(*(_verdict(loss) for loss in losses))

    assert whole.lost_ci95 is not None
    assert whole.lost_frac is not None
    assert 0 <= whole.lost_ci95[0] <= whole.lost_frac <= whole.lost_ci95[1] <= 1


def test_many_windows_narrow_the_interval() -> None:
    few, many = _whole(*[_verdict(0.5)] * 2), _whole(*[_verdict(0.5)] * 50)

    assert few.lost_ci95 is not None
    assert many.lost_ci95 is not None
    assert many.lost_ci95[1] - many.lost_ci95[0] == pytest.approx(0.1 / 50**0.5)
    assert few.lost_ci95[1] - few.lost_ci95[0] == pytest.approx(0.1 / 2**0.5)


def test_evidence_is_that_of_the_newest_window_with_the_same_cause() -> None:
    whole = _whole(
        _verdict(0.9, evidence=("old",), advice="old"),
        _verdict(0.9, evidence=("new",), advice="new"),
        _verdict(0.2, shares={causes.DISK: 1.0}, evidence=("disk",), advice="disk"),
    )

    assert (whole.evidence, whole.advice) == (("new",), "new")


def test_a_healthy_run_has_no_shares() -> None:
    whole = _whole(*[_verdict(0.02, shares={}, cause=causes.HEALTHY)] * 3)

    assert whole.cause == causes.HEALTHY
    assert whole.shares == ()


def test_one_bad_window_in_a_long_healthy_run_is_no_loss() -> None:
    whole = _whole(*[_verdict(0.01, shares={}, cause=causes.HEALTHY)] * 30, _verdict(0.6))

    assert whole.cause == causes.HEALTHY


def test_clocks_that_were_held_most_of_the_time_are_the_headline() -> None:
    hot = _verdict(0.01, shares={}, cause=causes.THROTTLED)
    cool = _verdict(0.01, shares={}, cause=causes.HEALTHY)

    assert _whole(hot, hot, cool).cause == causes.THROTTLED
    assert _whole(hot, cool, cool).cause == causes.HEALTHY


def test_majorities_are_those_of_the_time() -> None:
    hot = _verdict(0.01, 5, shares={}, cause=causes.THROTTLED)
    cool = _verdict(0.01, 60, shares={}, cause=causes.HEALTHY)

    assert _whole(hot, hot, cool).cause == causes.HEALTHY


def test_a_run_that_was_open_most_of_the_time_stays_open() -> None:
    open_ = _verdict(0.01, shares={}, cause=causes.UNDETERMINED)

    assert _whole(open_, open_, _verdict(0.01, shares={}, cause=causes.HEALTHY)).cause == causes.UNDETERMINED
    unclear = {causes.UNDETERMINED: 0.6, causes.DISK: 0.4}
    assert _whole(*[_verdict(0.5, shares=unclear, cause=causes.UNDETERMINED)] * 3).cause == causes.UNDETERMINED


def test_no_cause_of_enough_is_undetermined() -> None:
    causes_seen = [causes.DISK, causes.NETWORK, causes.CPU_DECODE, causes.MAIN_PYTHON]

    assert _whole(*[_verdict(0.5, shares={cause: 1.0}) for cause in causes_seen]).cause == causes.UNDETERMINED


def test_windows_before_the_start_do_not_count() -> None:
    before = _verdict(None, cause=causes.NOT_STARTED, shares={}, util_frac=None, lost_ci95=None)

    whole = _whole(before, _verdict(0.6))

    assert whole.lost_frac == pytest.approx(0.6)
    assert whole.seconds == 10


def test_without_an_accelerator_there_is_no_use_of_it() -> None:
    whole = _whole(*[_verdict(0.5, source=LOADER_WAIT, util_frac=None)] * 2)

    assert whole.util_frac is None


def test_a_sampled_loss_that_may_be_none_becomes_a_cause_when_more_readings_show_it() -> None:
    window = _verdict(0.1, source=LOADER_WAIT, util_frac=None, looks=20)

    assert _whole(window).cause == causes.UNDETERMINED
    assert _whole(*[window] * 6).cause != causes.UNDETERMINED


def test_what_the_main_thread_did_is_weighted_by_time() -> None:
    whole = _whole(
        _verdict(0.5, 10, activities={"waits for the loader": 1.0}),
        _verdict(0.5, 30, activities={"communicates": 1.0}),
    )

    assert whole.activities == pytest.approx({"communicates": 0.75, "waits for the loader": 0.25})
    assert list(whole.activities) == ["communicates", "waits for the loader"]


def test_readings_and_stacks_add_up() -> None:
    whole = _whole(_verdict(0.5, looks=20, stacks=3), _verdict(0.5, looks=5, stacks=0))

    assert (whole.looks, whole.stacks) == (25, 3)


WAITS = {causes.COMMUNICATION: 0.95, causes.MAIN_PYTHON: 0.05}


def test_the_rank_that_holds_up_the_others_comes_first() -> None:
    waiting = [_verdict(0.6, rank=rank, shares=WAITS) for rank in (0, 1, 3)]
    slow = _verdict(0.3, rank=2)

    ordered = worst_first([*waiting[:2], slow, waiting[2]])

    assert ordered[0] == slow
    assert [verdict.rank for verdict in ordered[1:]] == [0, 1, 3]
    for verdict_ in ordered[1:]:
        assert "rank 2" in (verdict_.advice or "")
        assert causes.title_of(causes.CPU_DECODE) in (verdict_.advice or "")


def test_without_ranks_the_process_is_named() -> None:
    slow, waiting = _verdict(0.3, pid=77), _verdict(0.6, pid=78, shares=WAITS)

    assert "process 77" in (worst_first([waiting, slow])[1].advice or "")


def test_a_rank_alone_and_no_rank_stay_as_they_are() -> None:
    alone = _verdict(0.6, shares=WAITS)

    assert worst_first([alone]) == (alone,)
    assert worst_first([]) == ()


def test_ranks_that_all_wait_for_each_other_point_at_nobody() -> None:
    ranks = [_verdict(0.6, rank=rank, shares=WAITS, advice="larger batches") for rank in range(4)]

    assert {verdict_.advice for verdict_ in worst_first(ranks)} == {"larger batches"}


def test_ranks_that_lose_the_same_way_keep_their_own_advice() -> None:
    ranks = [_verdict(0.6, rank=rank, advice="num_workers 2 -> 5") for rank in range(4)]

    assert [verdict_.rank for verdict_ in worst_first(ranks)] == [0, 1, 2, 3]
    assert {verdict_.advice for verdict_ in worst_first(ranks)} == {"num_workers 2 -> 5"}


def test_a_rank_of_which_little_is_known_is_no_culprit() -> None:
    new = _verdict(0.03, rank=3, shares={}, cause=causes.UNDETERMINED)
    lost = _verdict(0.5, rank=3, shares={causes.UNDETERMINED: 1.0})
    waiting = _verdict(0.4, rank=0, shares=WAITS, advice="larger batches")

    assert waiting in worst_first([waiting, new])
    assert worst_first([waiting, lost])[0] == lost
    assert waiting not in worst_first([waiting, lost])


def test_a_rank_that_has_not_begun_comes_last() -> None:
    new = _verdict(None, rank=0, cause=causes.NOT_STARTED, shares={}, util_frac=None, lost_ci95=None)

    assert worst_first([new, _verdict(0.6, rank=1)])[-1] == new


def test_a_rank_whose_clocks_are_held_is_what_the_others_wait_for() -> None:
    hot = _verdict(0.01, rank=3, shares={}, cause=causes.THROTTLED)
    waiting = [_verdict(0.4, rank=rank, shares=WAITS) for rank in (0, 1, 2)]

    ordered = worst_first([*waiting, hot])

    assert ordered[0] == hot
    assert causes.title_of(causes.THROTTLED) in (ordered[1].advice or "")


def test_all_of_a_run_keeps_what_is_not_summed() -> None:
    one = _verdict(0.6, rank=3, pid=9)

    assert _whole(one, replace(one, seconds=20.0)).rank == 3
