from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from pipetune.hook.channel import ChannelClosedError
from pipetune.hook.division import SAME_SAMPLES, Division
from pipetune.hook.keeping import LEAST_KEPT
from pipetune.hook.relay import Relay
from pipetune.hook.source import Source
from pipetune.measure.script.protocol import CLOSED
from pipetune.usercode.loop_clock import HostClock
from tests.fakes import Clock
from tests.unit.hook.fake_torch import Endless, Numbers, loader_module

STEP_S = 0.05


class Left(BaseException):
    """The process has ended."""


class FakeChannel:
    """Answers with requests, one after the other; the parent has gone when there are no more."""

    def __init__(self, *requests: dict[str, Any]) -> None:
        self.requests = list(requests)
        self.sent: list[dict[str, Any]] = []
        self.arriving: list[dict[str, Any]] = []
        """What comes while the loop runs."""

    def send(self, kind: str, **fields: Any) -> None:
        self.sent.append({"type": kind, **fields})

    def receive(self) -> dict[str, Any]:
        if not self.requests:
            raise ChannelClosedError("gone")
        return self.requests.pop(0)

    def poll(self) -> dict[str, Any] | None:
        return self.arriving.pop(0) if self.arriving else None

    def kinds(self, *wanted: str) -> list[str]:
        return [message["type"] for message in self.sent if not wanted or message["type"] in wanted]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.sent if message["type"] == kind]


def measure(role: str = "candidate", workers: int = 0, **settings: Any) -> dict[str, Any]:
    changed = {"num_workers": workers, "prefetch_factor": 2 if workers else None, **settings}
    return {
        "type": "measure", "role": role, "settings": {} if role in ("ceiling", "baseline") else changed,
        "num_workers": workers, "prefetch_depth": 2 if workers else 0, "seconds": 0.5, "warmup_limit_s": 0.5,
        "question": None, "starts": 0,
    }  # fmt: skip


END = {"type": "end"}


class Loop:
    """A training loop on a clock of its own, over a loader of a torch that is none."""

    def __init__(self, channel: FakeChannel, dataset: Any = None, *, workers: int = 0, **options: Any) -> None:
        self.module, self.clock, self.channel = loader_module(), Clock(), channel
        self.dataset = Numbers(40) if dataset is None else dataset
        loader = self.module.DataLoader(self.dataset, 4, num_workers=workers)
        self.source = Source(loader, self.module.DataLoader._get_iterator)
        self.statuses: list[int] = []
        self.relay = Relay(
            channel, self.source, HostClock(), now_ns=self.clock, leave=self._leave, **options  # type: ignore[arg-type]
        )  # fmt: skip
        self.epochs: list[int] = []
        """Batches of each epoch that has ended."""
        self.in_epoch = 0
        self.between: Callable[[], None] = lambda: None
        """What the script does between two epochs."""
        self.trained: list[list[int]] = []
        """Batches that were loaded, and not handed out again."""

    def _leave(self, status: int) -> None:
        self.statuses.append(status)
        raise Left

    def run(self, steps: int = 3000, each: Callable[[int], None] = lambda number: None) -> None:
        """Train until the process ends."""
        for number in range(steps):
            each(number)
            try:
                batch = self.relay.next()
            except StopIteration:
                self.epochs.append(self.in_epoch)
                self.in_epoch = 0
                self.between()
                self.relay.epoch()
                continue
            except Left:
                return
            self.in_epoch += 1
            if not self.source.replaying:
                self.trained.append(batch)
            self.clock.sleep(STEP_S)
        raise AssertionError("the loop went on")


def broken(loop: Loop, *workers: int, unstartable: tuple[int, ...] = ()) -> Loop:
    kind = loop.module._BaseDataLoaderIter
    kind.broken, kind.unstartable = frozenset(workers), frozenset(unstartable)
    return loop


def each_once_an_epoch(loop: Loop) -> bool:
    """Whether what was trained on is one whole epoch after another, up to the batch in which it ended."""
    numbers = [number for batch in loop.trained for number in batch]
    epochs = [numbers[start : start + loop.dataset.count] for start in range(0, len(numbers), loop.dataset.count)]
    whole, last = epochs[:-1], epochs[-1]
    return all(sorted(epoch) == list(range(loop.dataset.count)) for epoch in whole) and len(set(last)) == len(last)


def test_the_ceiling_then_a_candidate_then_the_end() -> None:
    loop = Loop(FakeChannel(measure("ceiling"), measure(workers=2), END))
    loop.run()
    results = loop.channel.of("result")
    assert loop.statuses == [0]
    assert len(results) == 2
    phases = [message["phase"] for message in loop.channel.of("phase")]
    assert phases == ["first_batch", "warmup", "timed"] * 2
    assert set(loop.epochs) == {10}


def test_it_waits_before_anything_is_asked_for() -> None:
    loop = Loop(FakeChannel())
    with pytest.raises(Left):
        loop.relay.next()
    assert loop.statuses == [CLOSED]  # the parent has gone, and the training is not the script's own


def test_batches_are_kept_for_the_ceiling_once_and_then_it_loads_nothing() -> None:
    loop = Loop(FakeChannel(measure("ceiling"), measure("ceiling"), END))
    loop.run()
    assert len(loop.source.kept) == 3, "a third of the epoch"
    assert len(loop.dataset.read) == 4 * 3
    assert set(loop.epochs) == {10}
    assert loop.channel.of("first_batch") == 2 * [
        {"type": "first_batch", "open_s": 0.0, "time_to_first_batch_s": 0.0, "starts": []}
    ]


def test_of_an_epoch_of_two_batches_both_are_kept_and_of_a_slow_loop_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(FakeChannel(measure("ceiling"), END), Numbers(8))
    loop.run()
    assert len(loop.source.kept) == LEAST_KEPT
    assert set(loop.epochs) == {2}
    monkeypatch.setattr(sys.modules[__name__], "STEP_S", 3.0)
    slow = Loop(FakeChannel(measure("ceiling"), END), Numbers(400))
    slow.run()
    assert len(slow.source.kept) == LEAST_KEPT


def test_all_steps_arrive_once_with_their_samples_and_phases() -> None:
    loop = Loop(FakeChannel(measure(workers=1), END))
    loop.run()
    (result,) = loop.channel.of("result")
    rows = [(message["phase"], row) for message in loop.channel.of("steps") for row in message["rows"]]
    assert [phase for phase, _ in rows] == sorted((phase for phase, _ in rows), key=["warmup", "timed"].index)
    assert sum(phase == "warmup" for phase, _ in rows) == result["warmup_batches"]
    starts = [row[0] for _, row in rows]
    assert starts == sorted(set(starts))
    assert {row[6] for _, row in rows} == {4}
    assert [row[4] for _, row in rows[1:]] == [0.0] * (len(rows) - 1)  # the loop never waits
    assert len(loop.trained) == len(rows) == result["stop_at"]


def test_the_share_of_time_that_other_loaders_took_is_told_for_each_measurement() -> None:
    loop = Loop(FakeChannel(measure("baseline"), measure(workers=1), END))

    def wait_for_another(_: int) -> None:
        if not loop.channel.of("result"):
            loop.relay.waited_for_others(int(STEP_S / 4 * 1e9))

    loop.run(each=wait_for_another)
    measured = [message["other_loaders_frac"] for message in loop.channel.of("result")]
    assert measured == [pytest.approx(0.25, rel=0.1), 0.0]


def test_candidates_may_alternate_and_no_sample_is_lost_or_comes_twice_in_an_epoch() -> None:
    requests = [measure(workers=number) for number in (2, 1, 3, 2, 1)]
    loop = Loop(FakeChannel(measure("baseline"), *requests, measure("baseline"), measure(workers=0), END))
    loop.run()
    assert len(loop.channel.of("result")) == 8
    assert each_once_an_epoch(loop)


def test_a_candidate_whose_worker_fails_is_a_failure_and_the_loop_goes_on() -> None:
    loop = broken(Loop(FakeChannel(measure(workers=3), measure("baseline"), measure(workers=2), END)), 3)
    loop.run()
    (failure,) = loop.channel.of("failure")
    assert (failure["phase"], failure["error"]) == ("timed", "RuntimeError")
    assert failure["message"] == "DataLoader worker (pid 7) is killed"
    assert len(loop.channel.of("result")) == 2
    assert loop.statuses == [0]
    assert each_once_an_epoch(loop)


def test_a_candidate_that_cannot_be_opened_is_a_failure_too_also_when_it_is_tried_again() -> None:
    requests = [measure(workers=3), measure(workers=3), measure(workers=2), END]
    loop = broken(Loop(FakeChannel(*requests)), unstartable=(3,))
    loop.run()
    failures = loop.channel.of("failure")
    assert [(one["phase"], one["error"], one["message"]) for one in failures] == [
        ("open", "OSError", "no more processes"),
        ("open", "OSError", "no more processes"),
    ]
    assert len(loop.channel.of("result")) == 1
    assert each_once_an_epoch(loop)


def test_an_error_of_the_scripts_own_loader_is_the_scripts() -> None:
    loop = broken(Loop(FakeChannel(measure("baseline"), END), workers=1), 1)
    with pytest.raises(RuntimeError, match="is killed"):
        loop.run()
    assert loop.channel.of("failure") == []


def test_an_error_in_a_step_is_the_scripts() -> None:
    loop = Loop(FakeChannel(measure("baseline"), END))

    def fail(number: int) -> None:
        if number == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.run(each=fail)


def test_a_parent_that_goes_while_the_loop_is_measured_ends_the_process() -> None:
    loop = Loop(FakeChannel(measure("baseline"), END))
    sent = loop.channel.send

    def send(kind: str, **fields: Any) -> None:
        sent(kind, **fields)
        if kind == "steps":
            raise ChannelClosedError("gone")

    loop.channel.send = send  # type: ignore[method-assign]
    loop.run()
    assert loop.statuses == [CLOSED]


def steps_of(loop: Loop) -> list[list[Any]]:
    return [row for message in loop.channel.of("steps") for row in message["rows"]]


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
    monkeypatch.setattr(sys.modules[__name__], "STEP_S", 0.01)
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
        self.begun = self.asked = 0

    def begin(self) -> None:
        self.begun += 1
        self.asked = 0

    def find_fault(self, iterator: Any, *, own: bool = False) -> str | None:
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
    deeper = measure(workers=2, prefetch_factor=4)
    loop = iterable(measure("baseline"), measure(workers=1), measure("baseline"), deeper, END, workers=2)
    loop.run()
    assert [result["repeats"] for result in loop.channel.of("result")] == [True, False, True, True]
    assert loop.statuses == [0]


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
