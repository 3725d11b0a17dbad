"""Sources of real loaders: epochs, switches, and workers that are started to be timed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.unit.hook.fake_torch import Endless, Numbers
from tests.unit.hook.test_source import SWITCHES, numbers, real, rest, source_of


@pytest.mark.thorough
@pytest.mark.parametrize("switches", SWITCHES, ids=["some batches each", "hardly any"])
@pytest.mark.parametrize("options", [
    {"batch_size": 4, "shuffle": True}, {"batch_size": 4, "shuffle": True, "num_workers": 2},
    {"batch_size": 4, "num_workers": 1, "persistent_workers": True}, {"batch_size": None},
], ids=["none of its own", "two", "one that lives on", "not collated"])  # fmt: skip
def test_real_loaders_lose_and_double_nothing_in_an_epoch(options: dict[str, Any], switches: Any) -> None:
    source = real(103, **options)
    got = numbers(source.next())
    for settings, batches in switches:
        source.switch(settings)
        for _ in range(batches):
            got += numbers(source.next())
    while len(got) < 103:
        got += numbers(source.next())
    source.close()
    assert Counter(got) == Counter(range(103))


@pytest.mark.thorough
@pytest.mark.parametrize("persistent", [False, True])
def test_real_loaders_have_whole_epochs_with_switches_and_kept_batches_in_them(persistent: bool) -> None:
    source = real(10, batch_size=4, shuffle=True, num_workers=1, persistent_workers=persistent)
    for settings in ({"num_workers": 1}, {"num_workers": 2}, {}, {"num_workers": 1, "prefetch_factor": 3}):
        first = source.next()
        source.switch(settings)
        got = [first, *rest(source)]
        assert sorted(number for batch in got for number in numbers(batch)) == list(range(10))
        source.begin_epoch()
        source.kept.keep(source.next())
        source.replay()
        source.next()
        source.switch({"num_workers": 2})
        assert len(rest(source)) == 1
        source.begin_epoch()
    source.close()


@pytest.mark.parametrize("in_order", [True, False])
def test_workers_are_started_for_a_batch_each_and_all_that_they_read_is_delivered(in_order: bool) -> None:
    source = source_of(Numbers(100), batch_size=2, num_workers=2, prefetch_factor=4, in_order=in_order)
    got = [source.next()]
    own = source.inner
    first_s, end_s = source.time_start()
    assert own.ended
    assert first_s > 0
    assert end_s > 0
    assert len(source.undelivered) in ((2,) if in_order else (2 + 7, 2 + 8))
    source.time_start()
    ready = len(source.undelivered)
    got += [source.next() for _ in range(ready)]
    assert sorted(number for batch in got for number in batch) == list(range(2 * (1 + ready))), "none lost or doubled"
    got += [source.next() for _ in range(20)]
    flat = [number for batch in got for number in batch]
    assert len(set(flat)) == len(flat)
    if in_order:
        assert flat == list(range(len(flat)))


class FifthIsDamaged(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise OSError("image 5 is damaged")
        return super().__getitem__(index)


def test_a_sample_that_fails_while_workers_are_started_fails_once() -> None:
    source = source_of(FifthIsDamaged(12), batch_size=2, num_workers=3)
    with pytest.raises(OSError, match="image 5"):
        source.time_start()
    assert [source.next() for _ in range(5)] == [[0, 1], [2, 3], [6, 7], [8, 9], [10, 11]]


def test_how_long_an_epoch_of_an_iterable_data_set_is_is_known_once_a_whole_one_has_ended() -> None:
    source = source_of(Endless(5), batch_size=2)
    source.next()
    source.switch({"num_workers": 1})
    seen = []
    for _ in range(2):
        rest(source)
        seen.append(source.epoch_batches)
        source.begin_epoch()
    assert seen == [None, 3]
    source.switch({"num_workers": 2})
    source.next()
    assert source.epoch_batches is None, "with other workers it may be another number"
