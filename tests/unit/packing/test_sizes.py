from __future__ import annotations

import pytest

from pipetune.packing.options import Pixels
from pipetune.packing.sizes import target_size


@pytest.mark.parametrize(
    ("size", "pixels", "expected"),
    [
        ((500, 375), Pixels(mode="shorter-edge", edge=256), (341, 256)),
        ((375, 500), Pixels(mode="shorter-edge", edge=256), (256, 341)),
        ((500, 375), Pixels(mode="longer-edge", edge=256), (256, 192)),
        ((300, 200), Pixels(mode="shorter-edge", edge=256), None),
        ((300, 200), Pixels(mode="shorter-edge", edge=256, enlarge=True), (384, 256)),
        ((300, 256), Pixels(mode="shorter-edge", edge=256, enlarge=True), None),
        ((5000, 10), Pixels(mode="longer-edge", edge=256), (256, 1)),
        ((500, 375), Pixels(), None),
        ((500, 375), Pixels(mode="lossless"), None),
    ],
)
def test_the_other_edge_follows(size: tuple[int, int], pixels: Pixels, expected: tuple[int, int] | None) -> None:
    assert target_size(*size, pixels) == expected
