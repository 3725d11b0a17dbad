from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pipetune.child.bad_images import each_tried
from pipetune.datasets.index import ImageFile

IMAGES = [
    ImageFile(
        path=f"{number}.jpg", label=0, size_bytes=1, width=1, height=1, orientation=1, format="jpeg", progressive=False
    )
    for number in range(20)
]


@pytest.fixture
def freed() -> Iterator[threading.Event]:
    """Set at the end, so that no thread of a test stays stuck."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("threads", [1, 3])
def test_every_image_is_tried_once(threads: int) -> None:
    tried: list[str] = []

    def decode(image: ImageFile) -> str | None:
        tried.append(image.path)
        return "no" if image.path == "7.jpg" else None

    results = dict(each_tried(decode, IMAGES, threads, replaceable=True))
    assert sorted(tried) == sorted(image.path for image in IMAGES)
    assert results == {position: "no" if position == 7 else None for position in range(20)}


def test_an_image_that_takes_for_ever_is_bad_and_the_others_are_tried(freed: threading.Event) -> None:
    def decode(image: ImageFile) -> str | None:
        if image.path in ("3.jpg", "4.jpg"):
            freed.wait()
        return None

    results = dict(each_tried(decode, IMAGES, 2, replaceable=True, longest_s=1.5))
    assert len(results) == 20
    assert {position for position, why in results.items() if why} == {3, 4}
    assert results[3] == "not decoded after 2 s"


def test_a_library_that_only_one_thread_may_use_ends_there(freed: threading.Event) -> None:
    def decode(image: ImageFile) -> str | None:
        if image.path == "3.jpg":
            freed.wait()
        return None

    results = dict(each_tried(decode, IMAGES, 1, replaceable=False, longest_s=1.5))
    assert set(results) == {0, 1, 2, 3}


def test_want_of_memory_is_no_bad_image() -> None:
    def decode(image: ImageFile) -> str | None:
        raise MemoryError

    with pytest.raises(MemoryError):
        list(each_tried(decode, IMAGES, 2, replaceable=True))
