"""Workers of a script that are asked to live on: what they lose, what they cost, and when they are refused."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook.guards import renewed_with_epochs, state_of
from pipetune.hook.source import Source
from tests.unit.hook.fake_torch import Numbers, loader_module

KEPT = {"persistent_workers": True}


class Counting(Numbers):
    """A data set that notes something within each epoch, and is told of each by some scripts."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def source_of(dataset: Any, **options: Any) -> Source:
    module = loader_module()
    return Source(module.DataLoader(dataset, **options), module.DataLoader._get_iterator)


def rest(source: Source) -> list[Any]:
    found = []
    while True:
        try:
            found.append(source.next())
        except StopIteration:
            return found


def test_workers_are_refused_that_would_not_see_what_the_script_changes_between_epochs() -> None:
    dataset = Counting(8)
    source = source_of(dataset, batch_size=4, num_workers=2)
    source.switch(KEPT)
    rest(source)
    source.begin_epoch()
    rest(source)
    assert source.renewed == set(), "nothing was changed"
    dataset.set_epoch(1)
    source.begin_epoch()
    with pytest.raises(ValueError, match=r"changes the data set between epochs \(epoch\)"):
        source.next()
    source.switch({})
    assert len(rest(source)) == 2, "the script's own loader goes on"
    with pytest.raises(ValueError, match="changes the data set"):
        source.switch(KEPT)


def test_workers_are_refused_whose_epoch_a_batch_taken_beside_the_loop_would_begin_anew() -> None:
    source = source_of(Numbers(8), batch_size=4, num_workers=2)
    source.switch(KEPT)
    source.next()
    source.is_taken_beside = True
    with pytest.raises(ValueError, match=r"batches of the same loader beside its loop"):
        source.next()
    source.switch({})
    assert len(rest(source)) == 1, "the script's own loader goes on"


def test_what_a_data_set_changes_within_an_epoch_is_its_own_affair() -> None:
    dataset = Counting(8)
    source = source_of(dataset, batch_size=4)
    source.next()
    dataset.epoch = 5  # a cache, a counter, an opened file
    rest(source)
    source.begin_epoch()
    assert source.renewed == set()


def test_a_data_set_that_can_be_told_of_epochs_is_known_wherever_it_lies() -> None:
    assert renewed_with_epochs(Counting(3)) == ["set_epoch"]
    assert renewed_with_epochs(SimpleNamespace(dataset=Counting(3))) == ["set_epoch"]
    assert renewed_with_epochs(Numbers(3)) == []


def test_a_change_shows_in_a_value_an_object_or_its_length() -> None:
    dataset = SimpleNamespace(epoch=1, files=["a"], transform=SimpleNamespace(size=8))
    before = state_of(dataset)
    assert state_of(dataset) == before
    dataset.files.append("b")
    dataset.transform.size = 9
    changed = {name for name, value in state_of(dataset).items() if value != before[name]}
    assert changed == {"files", "transform.size"}


@pytest.mark.thorough
def test_the_beginning_of_an_epoch_is_timed_with_workers_that_live_on_and_loses_nothing() -> None:
    from torch.utils.data import DataLoader

    source = Source(DataLoader(Numbers(60), batch_size=2, num_workers=2), DataLoader._get_iterator)  # type: ignore[arg-type]
    got = source.next().tolist()
    source.switch({**KEPT, "num_workers": 2})
    first_s, end_s = source.time_start()
    started_s, _ = _restart(source)
    assert 0 < first_s < started_s
    assert end_s >= 0
    for batch in rest(source):
        got += batch.tolist()
    source.close()
    assert Counter(got) == Counter(range(60))


def _restart(source: Source) -> tuple[float, float]:
    source.switch({"num_workers": 2})
    return source.time_start()
