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


def test_an_iterable_data_set_begins_again_while_it_is_source_of() -> None:
    source = source_of(Endless(5), batch_size=2)
    source.next()
    source.switch({"num_workers": 1})
    assert rest(source) == [[0, 1], [2, 3], [4]]
    source.begin_epoch()
    assert rest(source) == [[0, 1], [2, 3], [4]]


class Sized(Endless):
    """Tells its length."""

    def __len__(self) -> int:
        return self.count


@pytest.mark.parametrize("kept", [0, 2, 9])
def test_where_it_tells_its_length_each_epoch_has_it_whatever_happens_in_it(kept: int) -> None:
    source = source_of(Sized(12), batch_size=2)
    got = [source.kept.keep(source.next())]
    source.replay()
    got += [source.next() for _ in range(min(kept, 5))]
    source.switch({"num_workers": 2})
    assert len(got + rest(source)) == len(source.loader) == 6
    source.begin_epoch()
    assert len(rest(source)) == 12, "two workers that yield all samples each: what the script would get from them"


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
    first, own = [source.next()], source.inner
    source.begin_epoch()
    assert first + rest(source) == [[0, 1], [0, 1], [2, 3]]
    source.begin_epoch()
    assert source.inner is own
    assert rest(source) == [[0, 1], [2, 3]]


def test_a_switch_goes_on_where_the_loader_was_and_ends_its_workers() -> None:
    source = source_of(Numbers(12), batch_size=2, num_workers=1, prefetch_factor=4)
    own = source.inner
    got = [source.next(), source.next()]
    source.switch({"num_workers": 2, "prefetch_factor": 2})
    assert own.ended
    assert got + rest(source) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    with pytest.raises(StopIteration):
        source.next()


def test_the_same_settings_again_change_nothing() -> None:
    source = source_of(Numbers(12), batch_size=2)
    source.switch({"num_workers": 2})
    inner = source.inner
    source.replay()
    source.switch({"num_workers": 2})
    assert source.inner is inner
    assert not source.replaying


def test_settings_that_cannot_be_opened_can_be_tried_again() -> None:
    source = source_of(Numbers(12), batch_size=2)
    source.inner.__class__.unstartable = frozenset({3})
    for _ in range(2):
        with pytest.raises(OSError, match="no more processes"):
            source.switch({"num_workers": 3})
    source.switch({})
    assert source.next() == [0, 1]


def test_a_loader_that_delivers_out_of_order_loses_and_doubles_nothing_either() -> None:
    source = source_of(Numbers(24), batch_size=2)
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
    source = source_of(Damaged(12), batch_size=2, num_workers=1)
    got = [source.next(), source.next()]
    with pytest.raises(OSError, match="damaged"):
        source.next()
    got.append(source.next())  # the script goes on
    source.switch({"num_workers": 2})
    got += [source.next(), source.next()]
    assert got == [[0, 1], [2, 3], [6, 7], [8, 9], [10, 11]]


def test_one_that_fails_with_other_settings_comes_with_the_scripts_own() -> None:
    source = source_of(Numbers(12), batch_size=2, num_workers=1)
    got = [source.next()]
    source.inner.__class__.broken = frozenset({2})
    source.switch({"num_workers": 2})
    with pytest.raises(RuntimeError):
        source.next()
    source.switch({})
    assert got + [source.next() for _ in range(5)] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("kept", [1, 3, 4, 5, 9])
def test_kept_batches_come_in_place_of_others_of_the_epoch(workers: int, kept: int) -> None:
    source = source_of(Numbers(12), batch_size=2, num_workers=workers)
    got = [source.kept.keep(source.next())]
    source.replay()
    while len(got) <= kept and (more := rest_of_one(source)):
        got += more
    source.switch({})
    loaded = rest(source)
    assert len(got + loaded) == len(source.loader) == 6
    assert got == [[0, 1]] * len(got)
    assert loaded == sorted(loaded)
    assert len({number for batch in loaded for number in batch} - {0, 1}) == 2 * len(loaded), "none comes twice"
    source.begin_epoch()
    assert rest(source) == [[2 * number, 2 * number + 1] for number in range(6)]


def rest_of_one(source: Source) -> list[Any]:
    try:
        return [source.next()]
    except StopIteration:
        return []


def test_whole_epochs_of_kept_batches_start_no_worker_and_are_as_long() -> None:
    source = source_of(Numbers(12), batch_size=2, num_workers=2)
    source.kept.keep(source.next())
    source.replay()
    rest(source)
    for _ in range(3):
        source.begin_epoch()
        assert source.inner is None
        assert rest(source) == [[0, 1]] * 6
    source.begin_epoch()
    source.switch({})
    assert [len(rest(source)), source.inner.ended] == [6, True]
    assert source.epoch_batches == 6


def test_no_workers_are_started_for_an_epoch_that_is_over() -> None:
    source = source_of(Numbers(4), batch_size=2, num_workers=1)
    assert len(rest(source)) == 2
    source.switch({"num_workers": 2})
    assert source.inner is None
    source.begin_epoch(open_now=False)
    assert source.inner is None
    source.switch({"num_workers": 3})
    assert len(rest(source)) == 2
    assert source.inner._num_workers == 3


def test_workers_live_on_where_the_scripts_do_or_where_that_is_asked_for() -> None:
    source = source_of(Numbers(4), batch_size=2, num_workers=1, persistent_workers=True)
    source.switch({"num_workers": 2})
    inner = source.inner
    for _ in range(3):
        assert rest(source) == [[0, 1], [2, 3]]
        assert not inner.ended
        source.begin_epoch()
        assert source.inner is inner
    source.switch({"num_workers": 0})
    assert rest(source) == [[0, 1], [2, 3]]
    plain = source_of(Numbers(4), batch_size=2, num_workers=1)
    plain.switch({"num_workers": 1, "persistent_workers": True})
    inner = plain.inner
    assert rest(plain) == [[0, 1], [2, 3]]
    plain.begin_epoch()
    assert plain.inner is inner


def test_an_epoch_of_another_loader_of_the_script_has_that_ones_batches() -> None:
    source = source_of(Numbers(4), batch_size=2)
    rest(source)
    source.begin_epoch(source_of(Numbers(6), batch_size=2).loader)
    assert rest(source) == [[0, 1], [2, 3], [4, 5]]
    assert source.length == 3


class Fold(Numbers):
    """Numbers from a first one on."""

    def __init__(self, first: int) -> None:
        super().__init__(8)
        self.first = first

    def __getitem__(self, index: int) -> int:
        return self.first + super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("settings", [{}, {"num_workers": 1}])
def test_kept_batches_are_of_the_data_set_that_is_trained_on(workers: int, settings: dict[str, Any]) -> None:
    source = source_of(Numbers(12), batch_size=2, num_workers=workers)
    source.switch(settings)
    source.kept.keep(source.next())
    source.kept.keep(source.next())
    source.replay()
    rest(source)
    source.begin_epoch(source_of(Fold(100), batch_size=2).loader)
    assert rest(source) == [[100, 101], [102, 103]] * 2
    source.begin_epoch()
    assert source.inner is None
    source.switch({})
    assert rest(source) == [[100, 101], [102, 103], [104, 105], [106, 107]], "each of the epoch comes once"
    source.begin_epoch(source_of(Fold(200), batch_size=2).loader)
    assert source.next() == [200, 201]
    source.replay()
    assert rest(source) == [[202, 203], [204, 205], [202, 203]]


def test_kept_batches_stay_where_another_data_set_has_none_to_load() -> None:
    source = source_of(Numbers(4), batch_size=2)
    source.kept.keep(source.next())
    source.replay()
    rest(source)
    source.begin_epoch(source_of(Damaged(6), batch_size=6).loader)
    assert rest(source) == [[0, 1]], "no error that the loop did not ask for"


def test_a_sampler_of_the_scripts_own_decides_how_long_an_epoch_is() -> None:
    class Shrinking:
        rounds = 0

        def __iter__(self) -> Any:
            self.rounds += 1
            return iter([[number] for number in range(6 - self.rounds)])

        def __len__(self) -> int:
            return 5

    source = source_of(Numbers(9), batch_sampler=Shrinking())
    lengths = []
    for _ in range(3):
        lengths.append(len(rest(source)))
        source.begin_epoch()
    assert lengths == [5, 4, 3]


def real(count: int, **options: Any) -> Source:
    from torch.utils.data import DataLoader

    return Source(DataLoader(Numbers(count), **options), DataLoader._get_iterator)  # type: ignore[arg-type]


def numbers(batch: Any) -> list[int]:
    return [int(number) for number in batch.tolist()] if hasattr(batch, "tolist") else [int(batch)]


SWITCHES = [
    [({"num_workers": 2, "prefetch_factor": 3}, 5), ({"num_workers": 0}, 3), ({"num_workers": 1}, 4), ({}, 1)],
    [({"num_workers": 1, "prefetch_factor": 4}, 0), ({"num_workers": 2}, 1), ({"num_workers": 0}, 0), ({}, 2)],
]


def test_a_batch_that_is_put_back_comes_first_and_counts_once() -> None:
    source = source_of(Numbers(16), batch_size=4, num_workers=2)
    source.switch({"num_workers": 1})
    first = source.next()
    source.put_back(first)
    assert (source.settings, source.delivered) == ({}, 0)
    batches = rest(source)
    assert batches[0] == first
    assert sorted(number for batch in batches for number in batch) == list(range(16))
