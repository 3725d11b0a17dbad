"""Slices of ranks, against torch's own DistributedSampler."""

from __future__ import annotations

from collections import Counter

import pytest

from pipetune.datasets.index import ImageSet
from pipetune.datasets.rank_slice import slice_of
from tests.unit.datasets.test_index import image, image_set


def images(count: int) -> ImageSet:
    return image_set(*(image(f"/photos/{number}.jpg") for number in range(count)))


@pytest.mark.parametrize(("count", "ranks"), [(12, 4), (13, 4), (3, 8), (7, 1)])
def test_every_image_is_some_ranks_and_all_have_as_many(count: int, ranks: int) -> None:
    whole = images(count)
    slices = [slice_of(whole, rank, ranks, seed=1).images for rank in range(ranks)]
    assert {len(one) for one in slices} == {-(-count // ranks)}
    seen = Counter(image.path for one in slices for image in one)
    assert set(seen) == {image.path for image in whole.images}
    twice = sum(times - 1 for times in seen.values())
    assert twice == -(-count // ranks) * ranks - count


@pytest.mark.parametrize(("count", "ranks"), [(12, 4), (13, 4), (3, 8)])
def test_as_many_as_torchs_sampler_gives(count: int, ranks: int) -> None:
    data = pytest.importorskip("torch.utils.data", reason="it is compared with torch's sampler")
    for rank in range(ranks):
        theirs = list(data.DistributedSampler(range(count), num_replicas=ranks, rank=rank))
        assert len(slice_of(images(count), rank, ranks, seed=0).images) == len(theirs)


def test_the_seed_decides_which() -> None:
    one, again, other = (slice_of(images(40), 1, 4, seed=seed).images for seed in (0, 0, 1))
    assert one == again
    assert one != other
