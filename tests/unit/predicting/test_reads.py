from __future__ import annotations

import pytest

from pipetune.predicting.reads import requests_of


@pytest.mark.parametrize(
    ("kib", "whole", "pieces"), [(0, 1, 1), (10, 1, 1), (16, 1, 1), (17, 1, 2), (48, 1, 2), (73, 1, 3), (112, 1, 3),
                                 (128, 1, 4), (129, 2, 4), (240, 2, 4), (368, 3, 5), (1000, 8, 10)],
)  # fmt: skip
def test_a_file_that_is_read_in_pieces_takes_more_requests(kib: int, whole: int, pieces: int) -> None:
    assert requests_of(kib * 1024, in_pieces=False) == whole
    assert requests_of(kib * 1024, in_pieces=True) == pieces
