"""A loader that is measured over epochs, with other ranks, and from its very first batch."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from pipetune.hook.division import SAME_SAMPLES, Division
from tests.unit.hook import test_relay
from tests.unit.hook.fake_torch import Endless, Numbers
from tests.unit.hook.test_relay import (
    END,
    STEP_S,
    FakeChannel,
    Left,
    Loop,
    broken,
    each_once_an_epoch,
    measure,
    steps_of,
)


def test_time_between_two_epochs_is_no_step() -> None:
    loop = Loop(FakeChannel(measure("ceiling"), measure("baseline"), measure(workers=2), END))
    loop.between = lambda: loop.clock.sleep(100.0)
    loop.run()
    rows = steps_of(loop)
    assert {round(row[3], 3) for row in rows} == {STEP_S}
    assert {row[4] for row in rows} == {0.0}
    for role in loop.channel.of("result"):
        assert all(round((ended - began) / 1e9) == 100 for began, ended in role["apart"])
        assert role["apart"]
    ends = [row[5] for row in rows]
    assert sum(after - before > 1e9 for before, after in pairwise(ends)) == 2, "between two measurements alone"
    assert set(loop.epochs) == {10}


def test_a_loop_that_leaves_its_epochs_early_goes_on_with_another() -> None:
    loop = Loop(FakeChannel(measure("baseline"), END))

    def leave(number: int) -> None:
        if number and number % 4 == 0:
            loop.clock.sleep(100.0)
            loop.relay.epoch()

    loop.run(each=leave)
    rows = steps_of(loop)
    assert {round(row[3], 3) for row in rows} == {STEP_S}
    assert max(after[5] - before[5] for before, after in pairwise(rows)) < 1e9
    assert {batch[0] for batch in loop.trained} == {0, 4, 8, 12}, "each begins at the first index"


def test_whole_epochs_are_measured_where_they_are_short_with_the_start_of_each() -> None:
    loop = Loop(FakeChannel(measure(workers=1), END), Numbers(12))
    opened = loop.source.open_again

    def open_slowly() -> None:
        loop.clock.sleep(0.2)
        opened()

    loop.source.open_again = open_slowly  # type: ignore[method-assign]
    loop.run()
    (result,) = loop.channel.of("result")
    timed = [row for message in loop.channel.of("steps") if message["phase"] == "timed" for row in message["rows"]]
    assert result["whole_epochs"]
    assert len(timed) % 3 == 0
    starts = [first for first, _ in result["epoch_starts"]]
    assert starts == [pytest.approx(0.2)] * len(starts)
    seconds = (timed[-1][5] - timed[0][5]) / 1e9 + STEP_S
    assert seconds == pytest.approx(len(timed) * STEP_S + 0.2 * round(len(timed) / 3), abs=0.21)
    assert {round(row[1], 3) for row in timed} == {0.0, 0.2}


def test_in_a_long_epoch_its_start_is_left_out_beyond_what_would_be_waited_for_anyway() -> None:
    loop = Loop(FakeChannel(measure(workers=1) | {"seconds": 0.3}, END), Numbers(100))
    opened = loop.source.open_again

    def open_slowly() -> None:
        loop.clock.sleep(5.0)
        opened()

    loop.source.open_again = open_slowly  # type: ignore[method-assign]
    for _ in range(20):
        loop.source.next()  # the epoch ends soon after the request
    loop.run()
    (result,) = loop.channel.of("result")
    assert not result["whole_epochs"]
    assert [first for first, _ in result["epoch_starts"]] == [pytest.approx(5.0)]
    rows = steps_of(loop)
    assert max(row[1] for row in rows[1:]) < 0.1
    assert max(after[5] - before[5] for before, after in pairwise(rows)) < 1e9


def test_with_the_end_of_an_epoch_all_steps_are_sent_for_there_may_be_no_other() -> None:
    loop = Loop(FakeChannel(measure("baseline") | {"seconds": 60.0}), Numbers(12))
    for _ in range(3):
        loop.relay.next()
        loop.clock.sleep(STEP_S)
    with pytest.raises(StopIteration):
        loop.relay.next()
    assert len(steps_of(loop)) == 3
    assert loop.channel.sent[-1]["type"] == "epoch"
    assert loop.channel.sent[-1]["within"] is False


def test_a_loop_that_takes_a_batch_ahead_has_its_last_step_in_its_epoch() -> None:
    loop = Loop(FakeChannel(measure("baseline"), END), Numbers(8))

    def last_step() -> None:
        loop.clock.sleep(STEP_S)
        loop.relay.stepped()
        loop.clock.sleep(100.0)

    loop.between = last_step
    loop.run()
    rows = steps_of(loop)
    gained = [(after[5] - before[5]) / 1e9 for before, after in pairwise(rows)]
    assert {round(span, 3) for span in gained} == {STEP_S, 2 * STEP_S}


@pytest.mark.parametrize("other_loader", [False, True], ids=["itertools.cycle", "another loader"])
def test_a_loop_that_keeps_its_batches_and_steps_on_ends_as_a_script_of_one_epoch(other_loader: bool) -> None:
    loop = Loop(FakeChannel(measure("baseline") | {"seconds": 60.0}), Numbers(400))
    for _ in range(100):
        loop.relay.next()
    with pytest.raises(StopIteration):
        loop.relay.next()
    for _ in range(199):
        loop.relay.stepped()
    if other_loader:
        loop.relay.waited_for_others(1)
        loop.relay.stepped()
        assert loop.statuses == []
        return
    with pytest.raises(Left):
        loop.relay.stepped()
    assert loop.statuses == [0]


def test_a_request_that_came_with_the_start_is_measured_from_the_first_batch_on() -> None:
    loop = Loop(FakeChannel(END), Numbers(12))
    loop.source.opened_ns = loop.clock()
    loop.clock.sleep(0.5)
    loop.relay.measure_from_start(measure("baseline"))
    loop.run()
    (result,) = loop.channel.of("result")
    assert result["epoch_starts"][0] == (pytest.approx(0.5), 0.0)
    assert len(steps_of(loop)) == result["stop_at"] == len(loop.trained)


def test_the_parent_is_told_when_the_loop_rests() -> None:
    loop = Loop(FakeChannel(measure("baseline"), measure(workers=2), END))
    loop.run()
    assert loop.channel.kinds("result", "resting") == ["result", "resting"] * 2


def test_with_several_ranks_the_first_names_a_step_a_little_ahead() -> None:
    loop = Loop(FakeChannel(measure("baseline"), END), ranks=2)
    loop.run()
    (result,) = loop.channel.of("result")
    rows = [row for message in loop.channel.of("steps") for row in message["rows"]]
    assert len(loop.trained) == result["stop_at"]
    ahead = result["stop_at"] - len(rows)
    assert 4 <= ahead <= 8  # 0.2 s of steps of 0.05 s, or four of them


def test_a_first_batch_that_was_waited_for_does_not_shorten_the_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_relay, "STEP_S", 0.01)
    loop = Loop(FakeChannel(measure("baseline"), END), ranks=2)
    loop.run(each=lambda number: loop.clock.sleep(60.0 if number == 1 else 0.0))
    (result,) = loop.channel.of("result")
    rows = [row for message in loop.channel.of("steps") for row in message["rows"]]
    assert 18 <= result["stop_at"] - len(rows) <= 22  # 0.2 s of steps of 0.01 s


def test_a_follower_stops_at_the_step_that_was_named() -> None:
    channel = FakeChannel(measure("baseline"), measure("baseline"), END)
    loop = Loop(channel, follows=True, ranks=2)

    def tell(number: int) -> None:
        if number in (10, 60):
            channel.arriving.append({"type": "stop", "at": 25})

    loop.run(each=tell)
    stopped = [message["at"] for message in channel.of("stopped")]
    assert stopped[0] == 25
    assert stopped[1] > 25, "the second came too late"
    assert channel.of("result") == []
    assert loop.statuses == [0]
    assert len(loop.trained) == sum(stopped)


def test_a_follower_whose_worker_fails_says_so() -> None:
    loop = broken(Loop(FakeChannel(measure(workers=3), END), follows=True, ranks=2), 3)
    loop.run()
    assert loop.channel.kinds("failure", "stopped") == ["failure"]


class FakeDivision(Division):
    """Finds the fault from a number of batches on, where there are so many workers."""

    def __init__(self, several: int = 2, after: int = 0) -> None:
        super().__init__(None, None)
        self.several, self.after = several, after
        self.asked = 0

    def begin(self, request: Mapping[str, Any]) -> None:
        super().begin(request)
        self.asked = 0

    def find_fault(self, iterator: Any) -> str | None:
        self.asked += 1
        return SAME_SAMPLES if len(iterator._workers) >= self.several and self.asked > self.after else None


def iterable(*requests: dict[str, Any], workers: int = 0, after: int = 0) -> Loop:
    division: Any = FakeDivision(after=after)
    return Loop(FakeChannel(*requests), Endless(4000), workers=workers, division=division)


@pytest.mark.parametrize("after", [0, 3], ids=["at once", "when the measurement is nearly over"])
def test_workers_that_yield_the_same_samples_are_refused_whenever_that_is_known(after: int) -> None:
    loop = iterable(measure(workers=2), measure(workers=1), END, after=after)
    loop.run()
    (failure,) = loop.channel.of("failure")
    assert (failure["error"], failure["message"]) == ("RepeatedSamplesError", SAME_SAMPLES)
    (result,) = loop.channel.of("result")  # a single worker yields each once
    assert result["repeats"] is False
    assert loop.statuses == [0]


def test_where_the_script_itself_has_such_workers_it_is_measured_as_it_is_and_that_is_told() -> None:
    own = {"num_workers": 2, "own_workers": 2}
    requests = [measure("baseline") | own, measure(workers=1) | {"own_workers": 2}, measure("baseline") | own,
                measure(workers=2, prefetch_factor=4) | own]  # fmt: skip
    loop = iterable(*requests, END, workers=2)
    loop.run()
    assert [result["repeats"] for result in loop.channel.of("result")] == [True, False, True, True]
    assert loop.statuses == [0]


class Stream(Endless):
    """Is divided among no workers, and torch's loader takes it for an iterable data set."""


def stream_loop(*requests: dict[str, Any], count: int, workers: int = 0) -> Loop:
    return Loop(FakeChannel(*requests), Stream(count), workers=workers, division=Division(None, None))


@pytest.mark.parametrize("count", [8, 16, 400], ids=["two batches", "four", "longer than a measurement"])
def test_other_workers_are_measured_until_the_samples_of_an_epoch_of_theirs_are_known(count: int) -> None:
    loop = stream_loop(measure(workers=2) | {"own_epoch_samples": count}, END, count=count)
    loop.run()
    (failure,) = loop.channel.of("failure")
    assert failure["error"] == "RepeatedSamplesError"
    assert f"and {count} with the script's own 0" in failure["message"]
    assert loop.channel.of("result") == []
    assert loop.statuses == [0]


def test_workers_that_leave_samples_out_are_refused() -> None:
    loop = stream_loop(measure(workers=1) | {"own_workers": 2, "own_epoch_samples": 100}, END, count=40)
    loop.run()
    (failure,) = loop.channel.of("failure")
    assert failure["message"].startswith("an epoch has 40 samples with 1 worker, and 100 with the script's own 2")


def test_workers_with_an_epoch_as_the_scripts_own_are_measured_until_it_has_ended() -> None:
    loop = stream_loop(measure(workers=1) | {"own_epoch_samples": 400}, END, count=400)
    loop.run()
    (result,) = loop.channel.of("result")
    assert result["epoch_samples"] == 400
    assert len(steps_of(loop)) < 100, "what is measured is no longer than else"
    assert loop.epochs == [100, 100], "the first had begun before"


def test_the_end_of_an_epoch_is_not_awaited_of_a_loop_that_leaves_its_epochs_early() -> None:
    loop = stream_loop(measure(workers=2) | {"own_epoch_samples": 400}, END, count=400)
    loop.run(each=lambda number: loop.relay.epoch() if number and number % 70 == 0 else None)
    (result,) = loop.channel.of("result")
    assert result["epoch_samples"] is None
    assert loop.epochs == []


def test_the_samples_of_an_epoch_are_told_with_its_end_and_not_where_the_script_ends_within_it() -> None:
    loop = stream_loop(END, count=12)
    loop.relay.measure_from_start(measure("baseline") | {"seconds": 60.0})
    for _ in range(3):
        loop.relay.next()
        loop.clock.sleep(STEP_S)
    loop.relay.script_ends()
    assert [message["epoch_samples"] for message in loop.channel.of("epoch")] == [None]
    with pytest.raises(StopIteration):
        loop.relay.next()
    assert loop.channel.of("epoch")[-1]["epoch_samples"] == 12


def test_starts_of_workers_are_timed_before_a_candidate_and_lose_no_sample() -> None:
    requests = [measure("ceiling") | {"starts": 3}, measure(workers=2) | {"starts": 3}, END]
    loop = Loop(FakeChannel(*requests), Numbers(400))
    loop.run()
    ceiling, candidate = loop.channel.of("first_batch")
    assert ceiling["starts"] == []
    assert len(candidate["starts"]) == 3
    assert candidate["time_to_first_batch_s"] == sorted(wait for wait, _ in candidate["starts"])[1]
    assert each_once_an_epoch(loop)


def test_workers_that_fail_when_they_are_started_fail_the_candidate() -> None:
    requests = [measure(workers=3) | {"starts": 3}, measure(workers=1) | {"starts": 2}, END]
    loop = broken(Loop(FakeChannel(*requests), Numbers(400)), 3)
    loop.run()
    assert loop.channel.kinds("failure", "result") == ["failure", "result"]
    assert each_once_an_epoch(loop)


@pytest.mark.parametrize("count", [8, 40, 200])
def test_an_epoch_of_a_loader_that_tells_no_length_is_as_long_as_ever_where_it_ends_before_long(count: int) -> None:
    requests = [measure("ceiling"), measure("baseline"), measure(workers=1), measure("ceiling")]
    loop = stream_loop(*requests, END, count=count)
    loop.run()
    assert len(loop.channel.of("result")) == 4
    assert set(loop.epochs) == {count // 4}


def test_the_ceiling_does_not_wait_for_the_end_of_an_endless_epoch() -> None:
    loop = stream_loop(measure("ceiling"), END, count=100_000)
    loop.run()
    assert len(loop.channel.of("result")) == 1
    assert loop.epochs == []
