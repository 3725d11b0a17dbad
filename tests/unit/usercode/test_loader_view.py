from __future__ import annotations

import functools
from typing import Any

import pytest

from pipetune.usercode.loader_view import MARK, end, view_of, worker_init_for
from pipetune.usercode.worker_start import WorkerStart
from tests.unit.hook.fake_torch import Endless, Numbers, loader_module


def loader(**options: Any) -> Any:
    return loader_module().DataLoader(Numbers(6), **{"batch_size": 2, **options})


def start(worker: int, num_workers: int, rank: int) -> tuple[int, int, int]:
    return worker, num_workers, rank


def test_a_view_has_the_settings_and_the_loader_keeps_its_own() -> None:
    own = loader(num_workers=2, prefetch_factor=3)
    before = dict(vars(own))
    view = view_of(own, {"num_workers": 4, "pin_memory": True, "in_order": False}, None)
    assert (view.num_workers, view.prefetch_factor, view.pin_memory, view.in_order) == (4, 3, True, False)
    assert view.dataset is own.dataset
    assert view.collate_fn is own.collate_fn
    assert vars(own) == before
    assert getattr(view, MARK)
    assert not hasattr(own, MARK)


def test_without_workers_it_has_nothing_that_needs_some() -> None:
    own = loader(
        num_workers=2, prefetch_factor=3, persistent_workers=True, timeout=30, multiprocessing_context="spawn"
    )  # fmt: skip
    view = view_of(own, {"num_workers": 0, "prefetch_factor": None}, None)
    assert (view.num_workers, view.prefetch_factor, view.persistent_workers, view.timeout) == (0, None, False, 0)
    assert view.multiprocessing_context is None
    assert list(view) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, 2), ({"prefetch_factor": None}, 2), ({"prefetch_factor": 5}, 5)]
)
def test_a_loader_without_workers_gets_torchs_default_depth_with_some(settings: Any, expected: int) -> None:
    assert view_of(loader(), {"num_workers": 3, **settings}, None).prefetch_factor == expected


def test_the_script_as_it_is_keeps_its_context_and_timeout() -> None:
    view = view_of(loader(num_workers=2, timeout=30, multiprocessing_context="spawn"), {}, None)
    assert (view.num_workers, view.timeout, view.multiprocessing_context) == (2, 30, "spawn")


def test_indices_take_the_place_of_what_the_loader_draws_from() -> None:
    assert list(view_of(loader(), {}, [[5, 4], [0]])) == [[5, 4], [0]]
    assert list(view_of(loader(batch_size=None), {}, [3, 1])) == [3, 1]


def test_an_iterable_data_set_needs_none() -> None:
    own = loader_module().DataLoader(Endless(3), 2)
    assert list(view_of(own, {"num_workers": 1}, None)) == [[0, 1], [2]]


def test_one_that_lives_on_does_not_share_its_iterator() -> None:
    own = loader(num_workers=1, persistent_workers=True)
    iterator = iter(own)
    view = view_of(own, {"num_workers": 2}, None)
    assert view._iterator is None
    iter(view)
    assert own._iterator is iterator


def test_the_finaliser_of_the_scripts_class_does_not_run_for_a_view() -> None:
    ended: list[Any] = []

    class Mine(loader_module().DataLoader):  # type: ignore[misc]
        def __del__(self) -> None:
            ended.append(self)

    own = Mine(Numbers(4))
    view = view_of(own, {}, None)
    assert isinstance(view, Mine)
    assert type(view).__module__ == Mine.__module__
    del view
    assert ended == []


def test_a_start_up_that_was_told_the_number_of_workers_is_told_the_new_one() -> None:
    own = functools.partial(start, num_workers=2, rank=1)
    assert view_of(loader(num_workers=2, worker_init_fn=own), {"num_workers": 5}, None).worker_init_fn(3) == (3, 5, 1)
    assert own(3) == (3, 2, 1)


@pytest.mark.parametrize(
    "function", [None, start, functools.partial(start, 1), functools.partial(start, num_workers=3)]
)
def test_any_other_start_up_stays(function: Any) -> None:
    assert worker_init_for(function, 2, 5) is function


def test_workers_get_the_cores_that_the_process_began_with_where_that_is_tried() -> None:
    view = view_of(loader(num_workers=1), {"worker_cores": "all"}, None, (0, 1))
    assert isinstance(view.worker_init_fn, WorkerStart)
    assert view.worker_init_fn.cores == (0, 1)


def test_ending_an_iterator_fails_for_nobody() -> None:
    iterator = iter(loader(num_workers=1))
    end(iterator)
    assert iterator.ended
    end(None)
    iterator._shutdown_workers = lambda: 1 / 0
    end(iterator)
