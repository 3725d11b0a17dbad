"""How large an image becomes. Pure."""

from __future__ import annotations

from pipetune.packing.options import LONGER_EDGE, SHORTER_EDGE, Pixels


def target_size(width: int, height: int, pixels: Pixels) -> tuple[int, int] | None:
    """``(width, height)`` in px that the image is resized to; ``None``: it keeps its pixels.

    The other edge is cut to whole pixels as ``torchvision.transforms.Resize`` does it, and is 1 px at least.
    """
    if pixels.edge is None or pixels.mode not in (SHORTER_EDGE, LONGER_EDGE):
        return None
    now = min(width, height) if pixels.mode == SHORTER_EDGE else max(width, height)
    if now == pixels.edge or (now < pixels.edge and not pixels.enlarge):
        return None
    return max(1, width * pixels.edge // now), max(1, height * pixels.edge // now)
