"""Pillow-SIMD: the same code as :mod:`pipetune.decoders.pillow` on a Pillow whose resizing is vectorised (SSE4, AVX2).

The child has put the library's side directory first on its path (see :mod:`pipetune.install.find`).
"""

from __future__ import annotations

from pipetune.decoders.pillow import decode_whole, load, require_pillow, transform

__all__ = ["decode_whole", "load", "require", "transform"]


def require() -> None:
    """See :mod:`pipetune.loaders.contract`."""
    require_pillow(simd=True)
