from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

from pipetune.hook.registry import Known, Loaders


class Images:
    """A data set of the script's."""


class Loader:
    """A loader of the script's."""


def made_here(loaders: Loaders, dataset: Any, sampler: str = "RandomSampler") -> Known:
    known = loaders.identify(sys._getframe(), dataset, sampler)
    assert known is not None
    return known


def made_by(package: str, loaders: Loaders, dataset: Any, sampler: str = "RandomSampler") -> Known | None:
    """A framework makes a loader, called from here."""
    scope: dict[str, Any] = {"__name__": package, "sys": sys}
    exec(
        "def prepare(loaders, dataset, sampler):\n    return loaders.identify(sys._getframe(), dataset, sampler)", scope
    )
    known: Known | None = scope["prepare"](loaders, dataset, sampler)
    return known


def test_loaders_of_the_same_call_and_classes_are_numbered() -> None:
    loaders = Loaders()
    known = [made_here(loaders, Images()) for _ in range(3)]
    assert [one.identity.ordinal for one in known] == [0, 1, 2]
    assert len({one.identity.key for one in known}) == 1
    assert known[0].identity.function == "made_here"
    assert known[0].identity.file == __file__
    assert loaders.count == 3


def test_another_data_set_or_sampler_is_numbered_by_itself() -> None:
    loaders = Loaders()
    known = [made_here(loaders, Images()), made_here(loaders, []), made_here(loaders, Images(), "SequentialSampler")]
    assert [one.identity.ordinal for one in known] == [0, 0, 0]
    assert len({one.identity.key for one in known}) == 3


def test_one_that_a_framework_makes_again_from_a_data_set_is_the_scripts() -> None:
    loaders, dataset = Loaders(), Images()
    mine = made_here(loaders, dataset)
    assert made_by("accelerate.data_loader", loaders, dataset, "BatchSamplerShard") == mine
    assert made_by("accelerate.data_loader", loaders, dataset, "BatchSamplerShard") == mine
    assert made_here(loaders, Images()).identity.ordinal == 1  # those do not count
    assert loaders.count == 4


def test_one_that_a_framework_makes_of_a_data_set_that_is_new_is_made_by_the_frameworks_caller() -> None:
    known = made_by("transformers.trainer", Loaders(), Images())
    assert known is not None
    assert known.identity.function == "made_by"


def test_of_two_with_one_data_set_a_framework_makes_the_one_with_that_sampler_again() -> None:
    """Trained on in random order, and evaluated in its own."""
    loaders, dataset = Loaders(), Images()
    train = made_here(loaders, dataset, "RandomSampler")
    made_here(loaders, dataset, "SequentialSampler")
    assert made_by("accelerate.data_loader", loaders, dataset, "RandomSampler") == train


def test_a_call_that_makes_several_is_not_the_only_ones() -> None:
    loaders = Loaders()
    first = made_here(loaders, Images())
    assert loaders.alone_at(first)
    made_here(loaders, Images(), "SequentialSampler")  # of another key
    assert loaders.alone_at(first)
    made_here(loaders, Images())
    assert not loaders.alone_at(first)


def test_a_loader_is_known_as_long_as_it_lives() -> None:
    loaders, loader = Loaders(), Loader()
    known = made_here(loaders, Images())
    assert loaders.of(loader) is None
    loaders.add(loader, known)
    assert loaders.of(loader) is known
    assert loaders.of(Loader()) is None
    del loader
    gc.collect()
    assert loaders._known == {}


def test_a_data_set_without_weak_references_is_known_too() -> None:
    loaders, dataset = Loaders(), [1, 2, 3]
    mine = made_here(loaders, dataset)
    assert made_by("accelerate", loaders, dataset) == mine
    assert made_by("accelerate", loaders, [1, 2, 3]) != mine  # equal, and another


def test_lists_of_a_script_that_makes_one_after_the_other_are_not_kept_for_ever() -> None:
    loaders, sample = Loaders(), Images()
    there = weakref.ref(sample)
    made_here(loaders, [sample])
    del sample
    for _ in range(20):
        made_here(loaders, [1])
    gc.collect()
    assert there() is None
    assert len(loaders._of_dataset) <= 9


def test_loaders_of_one_data_set_are_one_entry() -> None:
    loaders, dataset = Loaders(), Images()
    for _ in range(20):
        last = made_here(loaders, dataset)
    assert len(loaders._of_dataset) == 1
    assert made_by("accelerate", loaders, dataset) == last


def test_a_loader_that_only_frameworks_have_made_is_not_known() -> None:
    loaders = Loaders()
    assert loaders.identify(None, Images(), "RandomSampler") is None
    assert loaders.count == 1
