from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook.guards import is_iterable_set, own_generators, shards_of, told_workers


def generator(module: str, name: str) -> Any:
    return type(name, (), {"__module__": module})()


def test_generators_of_a_data_set_its_inner_one_and_its_transform_are_found() -> None:
    inner = SimpleNamespace(rng=random.Random(0), other=3)
    transform = SimpleNamespace(draw=generator("numpy.random._generator", "Generator"))
    outer = SimpleNamespace(dataset=inner, transform=transform, torch_rng=generator("torch._C", "Generator"))
    assert own_generators(outer) == ["draw", "rng", "torch_rng"]


@pytest.mark.parametrize(
    "dataset",
    [[1, 2], SimpleNamespace(seed=3, random=random), SimpleNamespace(x=generator("mine", "Generator")), None],
    ids=["a list", "the module", "a class of that name", "nothing"],
)
def test_what_is_no_generator_is_not_taken_for_one(dataset: Any) -> None:
    assert own_generators(dataset) == []


URLS = ["/data/0.tar", "https://host/1.tar", "s3://bucket/2.tar"]


class ResampledShards(SimpleNamespace):
    """As WebDataset's."""


@pytest.mark.parametrize(
    ("dataset", "shards"),
    [
        (SimpleNamespace(num_shards=7, files=URLS), 7),
        (SimpleNamespace(n_shards=0, files=URLS), 3),
        (SimpleNamespace(paths=[Path("/a/0"), Path("/a/1")], classes=["cat", "dog", "cow"]), 2),
        (SimpleNamespace(pipeline=[SimpleNamespace(urls=URLS), sorted]), 3),
        (SimpleNamespace(pipeline=[ResampledShards(urls=URLS)]), None),
        (SimpleNamespace(classes=["cat", "dog"], size=3), None),
        ((1, 2), None),
    ],
    ids=["stated", "stated wrongly", "paths", "WebDataset", "drawn with replacement", "no places", "nothing known"],
)
def test_shards_that_workers_share_out(dataset: Any, shards: int | None) -> None:
    assert shards_of(dataset) == shards


@pytest.mark.parametrize(
    ("dataset", "names"),
    [
        (SimpleNamespace(num_workers=4, files=URLS), ["num_workers"]),
        (SimpleNamespace(pipeline=[SimpleNamespace(urls=URLS, nworkers=4)]), ["nworkers"]),
        (SimpleNamespace(pipeline=[SimpleNamespace(urls=URLS)], nsamples=1250), ["nsamples"]),
        (SimpleNamespace(pipeline=[SimpleNamespace(urls=URLS)], nsamples=-1), []),
        (SimpleNamespace(num_workers=2, worker_id=4.0, workers=True, size=4), []),
        ([1, 2], []),
    ],
    ids=["its own", "a stage's", "an epoch of each worker", "no epoch", "another number", "a list"],
)
def test_a_data_set_that_was_told_the_number_of_workers(dataset: Any, names: list[str]) -> None:
    assert told_workers(dataset, 4) == names


def test_one_worker_more_or_less_is_no_hint() -> None:
    """Attributes of 0 and 1 are counts of all kinds of things."""
    assert told_workers(SimpleNamespace(worker_id=1, workers=0), 1) == []


def test_an_iterable_data_set_is_known_by_its_loaders_kind() -> None:
    assert is_iterable_set(SimpleNamespace(_dataset_kind=1))
    assert not is_iterable_set(SimpleNamespace(_dataset_kind=0))
    assert not is_iterable_set(SimpleNamespace())


class Closed:
    """Whose attributes raise another error than AttributeError, as those of a table's columns do."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_a_data_set_whose_attributes_raise_tells_nothing() -> None:
    assert own_generators(Closed()) == []
    assert shards_of(Closed()) is None
