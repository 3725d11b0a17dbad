from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from pipetune.datasets.index import ImageFile, ImageSet
from pipetune.explaining.subset import draw_subset


def images(count: int, *, width: int = 100, height: int = 50) -> ImageSet:
    one = ImageFile(path="", label=0, size_bytes=1, width=width, height=height, orientation=1, format="jpeg",
                    progressive=False)  # fmt: skip
    every = tuple(replace(one, path=f"/d/{n}", size_bytes=1000 + n * n) for n in range(count))
    return ImageSet(name="d", root="/d", classes=("a",), images=every, found_images=count)


def test_its_files_are_as_large_as_all_files_in_the_mean() -> None:
    every = images(5000)
    subset = draw_subset(every, 0)
    assert len(subset.images) == 512
    assert len({image.path for image in subset.images}) == 512
    assert abs(subset.mean_bytes / every.mean_bytes - 1) < 0.005


def test_the_seed_decides_which_images_are_drawn() -> None:
    every = images(5000)
    first, again, other = (draw_subset(every, seed).images for seed in (1, 1, 2))
    assert first == again != other


def test_a_small_set_is_taken_whole() -> None:
    every = images(20)
    assert sorted(image.path for image in draw_subset(every, 3).images) == sorted(i.path for i in every.images)


def test_no_more_are_drawn_than_fit_into_memory_decoded() -> None:
    subset = draw_subset(images(100, width=1000, height=1000), 0, most_bytes=12_000_000)
    assert len(subset.images) == 3
    assert len(draw_subset(images(100, width=9000, height=9000), 0, most_bytes=1).images) == 1


def test_the_mean_holds_for_any_first_image() -> None:
    every = images(2000)
    found = [draw_subset(every, seed, most_images=50).mean_bytes / every.mean_bytes for seed in range(40)]
    assert abs(fmean(found) - 1) < 0.01
    assert max(abs(one - 1) for one in found) < 0.05
