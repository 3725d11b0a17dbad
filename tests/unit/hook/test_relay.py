from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from pipetune.hook.channel import ChannelClosedError
from pipetune.hook.keeping import LEAST_KEPT
from pipetune.hook.relay import Relay
from pipetune.hook.source import Source
from pipetune.measure.script.protocol import CLOSED
from pipetune.usercode.loop_clock import HostClock
from tests.fakes import Clock
from tests.unit.hook.fake_torch import Numbers, loader_module

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
        "question": None, "starts": 0, "own_workers": 0, "own_epoch_samples": None,
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
