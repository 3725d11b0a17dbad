from __future__ import annotations

import os
import sys

import pytest

from pipetune.packing.names import Names


def test_names_come_back_as_they_were() -> None:
    names = ["a.jpg", "", "ordner/ü b.jpg", os.fsdecode(b"\xff\xfe.jpg"), "x" * 300]
    kept = Names(iter(names))
    assert list(kept) == names
    assert len(kept) == len(names)
    assert kept[-1] == names[-1]
    assert kept[1:4] == names[1:4]
    for beyond in (5, -6):
        with pytest.raises(IndexError, match="of 5"):
            kept[beyond]


def test_none_is_false() -> None:
    assert not Names([])
    assert list(Names([])) == []


def test_they_take_half_of_what_a_list_of_strings_takes() -> None:
    names = [f"class0001/{number:010}.jpg" for number in range(1000)]
    kept = Names(names)
    inside = sum(sys.getsizeof(part) for part in vars(kept).values())
    # Half of what a list of strings takes: of Python 3.13's strings, which are the smallest, too.
    assert inside < 0.5 * (sys.getsizeof(names) + sum(sys.getsizeof(name) for name in names))
