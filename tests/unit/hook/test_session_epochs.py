"""Epochs of the loader that is measured: each with all its batches, whatever iterates it."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.hook import session as module
from pipetune.hook.profile import Profile, Tuned
from pipetune.hook.which import CONFIRMATIONS
from tests.unit.hook import fake_script
from tests.unit.hook.fake_script import IDENTITY, MEASURE, Script
from tests.unit.hook.fake_torch import Numbers


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


def test_epochs_that_are_too_short_to_tell_do_not_matter(script: Script) -> None:
    train, val = script.loader(Numbers(8), shuffle=True), script.loader(Numbers(8))
    epochs = 0
    while not script.channel.of("ready"):
        script.train(train)
        script.evaluate(val)
        epochs += 1
        assert epochs < 10
    assert script.channel.of("ready")[0]["identity"]["sampler"] == "RandomSampler"


def test_each_epoch_of_the_one_that_is_measured_has_all_its_batches(script: Script) -> None:
    script.channel.requests = [dict(MEASURE)]
    train = script.loader(Numbers(20), shuffle=True, num_workers=1)
    epochs = [[number for batch in script.train(train) for number in batch] for _ in range(5)]
    assert epochs == [list(range(19, -1, -1))] * 5
    assert len(train) == 5


def test_a_batch_taken_aside_in_the_middle_of_an_epoch_ends_none(script: Script) -> None:
    script.channel.requests = [dict(MEASURE)]
    train = script.loader(Numbers(40), shuffle=True)
    lengths, aside = [], []
    for _ in range(4):
        count = 0
        for _ in train:
            script.step()
            count += 1
            if count % 3 == 0:
                aside.append(next(iter(train)))
        lengths.append(count)
    assert lengths == [10] * 4
    assert aside == [[39, 38, 37, 36]] * len(aside)
    assert script.session.trained is not None
    assert script.session.trained.source.is_taken_beside


def test_an_iterator_that_takes_the_place_of_one_that_was_left_is_measured(script: Script) -> None:
    script.channel.requests = [dict(MEASURE)]
    train = script.loader(Numbers(40), shuffle=True)
    iterator = iter(train)
    for number in range(30):
        if number % 6 == 5:
            iterator = iter(train)  # made before the one before is dropped
        next(iterator)
        script.step()
    feed = script.session.trained
    assert feed is not None
    assert feed.relay is not None
    assert feed.source.delivered == 1, "of the last pass"
    assert feed.relay._batches == 30 - CONFIRMATIONS


def test_an_iterator_that_has_ended_ends_again(script: Script) -> None:
    script.channel.requests = [dict(MEASURE)]
    train = script.loader(Numbers(40), shuffle=True)
    first = iter(train)
    for _ in first:
        script.step()
    assert next(first, None) is None
    second = iter(train)
    next(second)
    assert next(first, None) is None
    assert len(list(second)) == 9


def test_a_loader_whose_workers_live_on_has_whole_epochs_too(script: Script) -> None:
    script.channel.requests = [dict(MEASURE)]
    train = script.loader(Numbers(20), shuffle=True, num_workers=1, persistent_workers=True)
    assert [len(script.train(train)) for _ in range(4)] == [5] * 4


def test_it_is_measured_from_its_first_batch_where_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, Profile((Tuned(IDENTITY, {}, True),), {}))
    script.session._request = {**MEASURE, "device": "cpu", "ranks": 1}
    val, train = script.loader(Numbers(8)), script.loader(Numbers(20), shuffle=True)
    assert len(script.evaluate(val)) == 2
    assert len(script.train(train)) == 5
    (ready,) = script.channel.of("ready")
    assert ready["measures"]
    assert [len(message["rows"]) for message in script.channel.of("steps")] == [5]


def test_with_other_ranks_than_asked_for_it_waits_for_its_training(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, Profile((), {}))
    script.session._request = {**MEASURE, "device": "cpu", "ranks": 2}
    script.train(script.loader(shuffle=True))
    (ready,) = script.channel.of("ready")
    assert not ready["measures"]


def test_a_script_that_ends_too_soon_says_after_how_many_batches(script: Script) -> None:
    script.train(script.loader(Numbers(8), shuffle=True))
    script.session._report_batches()
    (untrained,) = script.channel.of("untrained")
    assert (untrained["batches"], untrained["evaluated"], untrained["steps"]) == (2, 0, 2)
    assert untrained["where"].startswith(f"{fake_script.__file__}:")


def test_a_script_that_only_evaluates_says_after_how_many_batches(script: Script) -> None:
    loaders = [script.loader(Numbers(20)), script.loader(Numbers(8))]  # at a time: each has a number of its own
    for loader in loaders:
        script.evaluate(loader)
    script.session._report_batches()
    (untrained,) = script.channel.of("untrained")
    assert (untrained["batches"], untrained["evaluated"], untrained["steps"], untrained["backward"]) == (0, 5, 0, 0)


def test_a_script_whose_training_is_recognised_says_nothing_of_that(script: Script) -> None:
    script.train(script.loader(shuffle=True))
    script.session._report_batches()
    assert script.channel.of("untrained") == []


def test_a_loader_that_is_made_anew_for_each_epoch_is_the_one_that_is_trained_on(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, epochs = Numbers(400), []
    monkeypatch.setattr(module.Relay, "epoch", lambda _, loader: epochs.append("again"))

    def made(dataset: Any) -> Any:
        return script.loader(dataset, shuffle=True)

    script.train(made(data))
    assert len(script.channel.of("ready")) == 1
    iter(made(data))
    assert epochs == ["again"]
    iter(made(Numbers(8)))  # an evaluation's, by the same call
    iter(script.module.DataLoader(data, 4, shuffle=True))  # of another call
    assert epochs == ["again"]


def test_data_that_are_made_anew_with_their_loader_for_each_epoch_are_still_those_that_are_trained_on(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = []
    monkeypatch.setattr(module.Relay, "epoch", lambda _, loader: epochs.append(len(loader.dataset)))

    def made(dataset: Any) -> Any:
        return script.loader(dataset, shuffle=True)

    script.train(made(Numbers(400)))
    iter(made(Numbers(400)))
    iter(made(Numbers(380)))  # filtered
    script.gradients = False
    iter(made(Numbers(400)))  # an evaluation's
    assert epochs == [400, 380]


def test_of_two_loaders_that_one_call_has_made_only_the_one_that_is_trained_on_goes_on(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = []
    monkeypatch.setattr(module.Relay, "epoch", lambda _, loader: epochs.append(loader))
    both = [script.loader(Numbers(400), shuffle=True) for _ in range(2)]
    script.train(both[0])
    iter(both[1])
    assert epochs == []


def test_a_loop_that_counts_its_batches_and_keeps_its_iterator_goes_on_with_a_loader_made_anew(script: Script) -> None:
    """As Lightning's, which may reload its loaders each epoch; one whose workers live on keeps its iterator."""
    script.channel.requests = [dict(MEASURE)]
    kept, epochs = [], []
    for _ in range(4):
        loader = script.loader(Numbers(20), shuffle=True, num_workers=1, persistent_workers=True)
        iterators = [iter(loader), iter(loader)]
        epochs.append([])
        for _ in range(len(loader)):
            epochs[-1] += next(iterators[-1])
            script.step()
        kept += [loader, *iterators]
    assert epochs == [list(range(19, -1, -1))] * 4
    assert script.session.trained is not None
    assert script.session.trained.source.loader is loader
    assert not script.session.trained.source.is_taken_beside  # type: ignore[union-attr]
