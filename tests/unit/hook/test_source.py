"""The batches of one loader across switches, of a torch that is none, and of real ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pipetune.hook.source import Source
from tests.unit.hook.fake_torch import Endless, Numbers, loader_module


def source_of(dataset: Any, **options: Any) -> Source:
    module = loader_module()
    return Source(module.DataLoader(dataset, **options), module.DataLoader._get_iterator)


def measured(dataset: Any, **options: Any) -> Source:
    """One whose epochs are not to end, as those of the loader that is trained on."""
    source = source_of(dataset, **options)
    assert source.stream is not None
    source.stream.endless = True
    return source


def rest(source: Source, most: int = 1000) -> list[Any]:
    found = []
    for _ in range(most):
        try:
            found.append(source.next())
        except StopIteration:
            return found
    raise AssertionError("it did not end")


def test_a_loader_that_is_only_looked_at_ends_as_it_would_have() -> None:
    source = source_of(Numbers(5), batch_size=2, shuffle=True)
    assert rest(source) == [[4, 3], [2, 1], [0]]
    with pytest.raises(StopIteration):
        source.next()


@pytest.mark.parametrize("workers", [0, 2])
def test_so_does_one_of_an_iterable_data_set(workers: int) -> None:
    source = source_of(Endless(5), batch_size=2, num_workers=workers)
    assert Counter(item for batch in rest(source) for item in batch) == Counter(list(range(5)) * max(1, workers))


def test_an_iterable_data_set_begins_again_while_it_is_measured() -> None:
    source = source_of(Endless(5), batch_size=2)
    source.go_on()
    source.switch({"num_workers": 1})
    assert [source.next() for _ in range(4)] == [[0, 1], [2, 3], [4], [0, 1]]


def test_its_own_loaders_attributes_stay_as_they_were() -> None:
    dataset = Numbers(5)
    module = loader_module()
    loader = module.DataLoader(dataset, 2, num_workers=1)
    before = dict(vars(loader))
    source = Source(loader, module.DataLoader._get_iterator)
    source.switch({"num_workers": 0})
    source.next()
    assert vars(loader) == before


def test_an_epoch_of_persistent_workers_begins_anew_with_the_samplers_indices() -> None:
    source = source_of(Numbers(4), batch_size=2, num_workers=1, persistent_workers=True)
    first = [source.next()]
    source.reset()
    assert first + rest(source) == [[0, 1], [0, 1], [2, 3]]
    source.reset()
    assert rest(source) == [[0, 1], [2, 3]]


def test_a_switch_goes_on_where_the_loader_was_and_ends_its_workers() -> None:
    source = measured(Numbers(12), batch_size=2, num_workers=1, prefetch_factor=4)
    own = source.inner
    got = [source.next(), source.next()]
    source.switch({"num_workers": 2, "prefetch_factor": 2})
    assert own.ended
    got += [source.next() for _ in range(5)]
    assert got == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [0, 1]]


def test_the_same_settings_again_change_nothing() -> None:
    source = source_of(Numbers(12), batch_size=2)
    source.switch({"num_workers": 2})
    inner = source.inner
    source.replaying = True
    source.switch({"num_workers": 2})
    assert source.inner is inner
    assert not source.replaying


def test_settings_that_cannot_be_opened_can_be_tried_again() -> None:
    source = measured(Numbers(12), batch_size=2)
    source.inner.__class__.unstartable = frozenset({3})
    for _ in range(2):
        with pytest.raises(OSError, match="no more processes"):
            source.switch({"num_workers": 3})
    source.switch({})
    assert source.next() == [0, 1]


def test_a_loader_that_delivers_out_of_order_loses_and_doubles_nothing_either() -> None:
    source = measured(Numbers(24), batch_size=2)
    got = [source.next()]
    source.switch({"num_workers": 2, "prefetch_factor": 2, "in_order": False})
    got += [source.next() for _ in range(3)]
    source.switch({"num_workers": 1})
    got += [source.next() for _ in range(8)]
    assert Counter(item for batch in got for item in batch) == Counter(range(24))


class Damaged(Numbers):
    """One sample cannot be read."""

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise OSError("damaged")
        return super().__getitem__(index)


def test_a_batch_that_the_script_passes_over_is_no_reason_to_double_another() -> None:
    source = measured(Damaged(12), batch_size=2, num_workers=1)
    got = [source.next(), source.next()]
    with pytest.raises(OSError, match="damaged"):
        source.next()
    got.append(source.next())  # the script goes on
    source.switch({"num_workers": 2})
    got += [source.next(), source.next()]
    assert got == [[0, 1], [2, 3], [6, 7], [8, 9], [10, 11]]


def test_one_that_fails_with_other_settings_comes_with_the_scripts_own() -> None:
    source = measured(Numbers(12), batch_size=2, num_workers=1)
    got = [source.next()]
    source.inner.__class__.broken = frozenset({2})
    source.switch({"num_workers": 2})
    with pytest.raises(RuntimeError):
        source.next()
    source.switch({})
    assert got + [source.next() for _ in range(5)] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]


def test_kept_batches_come_while_it_replays_and_the_loader_waits() -> None:
    source = source_of(Numbers(12), batch_size=2)
    source.kept.keep(source.next())
    source.replaying = True
    assert [source.next(), source.next()] == [[0, 1], [0, 1]]
    source.replaying = False
    assert source.next() == [2, 3]


def real(count: int, **options: Any) -> Source:
    from torch.utils.data import DataLoader

    return Source(DataLoader(Numbers(count), **options), DataLoader._get_iterator)  # type: ignore[arg-type]


def numbers(batch: Any) -> list[int]:
    return [int(number) for number in batch.tolist()] if hasattr(batch, "tolist") else [int(batch)]


SWITCHES = [
    [({"num_workers": 2, "prefetch_factor": 3}, 5), ({"num_workers": 0}, 3), ({"num_workers": 1}, 4), ({}, 1)],
    [({"num_workers": 1, "prefetch_factor": 4}, 0), ({"num_workers": 2}, 1), ({"num_workers": 0}, 0), ({}, 2)],
]


@pytest.mark.thorough
@pytest.mark.parametrize("switches", SWITCHES, ids=["some batches each", "hardly any"])
@pytest.mark.parametrize("options", [
    {"batch_size": 4, "shuffle": True}, {"batch_size": 4, "shuffle": True, "num_workers": 2},
    {"batch_size": 4, "num_workers": 1, "persistent_workers": True}, {"batch_size": None},
], ids=["none of its own", "two", "one that lives on", "not collated"])  # fmt: skip
def test_real_loaders_lose_and_double_nothing_in_an_epoch(options: dict[str, Any], switches: Any) -> None:
    source = real(103, **options)
    assert source.stream is not None
    source.stream.endless = True
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
def test_real_loaders_go_on_into_the_next_epoch() -> None:
    source = real(10, batch_size=4, shuffle=True)
    assert source.stream is not None
    source.stream.endless = True
    got: list[int] = []
    for workers in (1, 0, 2):
        source.switch({"num_workers": workers})
        for _ in range(4):  # an epoch has three batches
            got += numbers(source.next())
    source.close()
    assert [sorted(got[start : start + 10]) for start in (0, 10, 20, 30)] == [list(range(10))] * 4


@pytest.mark.parametrize("in_order", [True, False])
def test_workers_are_started_for_a_batch_each_and_all_that_they_read_is_delivered(in_order: bool) -> None:
    source = measured(Numbers(100), batch_size=2, num_workers=2, prefetch_factor=4, in_order=in_order)
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
    source = measured(FifthIsDamaged(12), batch_size=2, num_workers=3)
    with pytest.raises(OSError, match="image 5"):
        source.time_start()
    assert [source.next() for _ in range(5)] == [[0, 1], [2, 3], [6, 7], [8, 9], [10, 11]]


def test_how_long_an_epoch_of_an_iterable_data_set_is_is_known_once_one_has_ended() -> None:
    source = source_of(Endless(5), batch_size=2)
    source.go_on()
    source.switch({"num_workers": 1})
    seen = []
    for _ in range(5):
        source.next()
        seen.append(source.epoch_batches)
    assert seen == [None, None, None, 3, 3]
    source.switch({"num_workers": 2})
    source.next()
    assert source.epoch_batches is None, "with other workers it may be another number"
