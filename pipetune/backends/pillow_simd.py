"""Pillow-SIMD: the same code as :mod:`pipetune.backends.pillow` on a Pillow whose resizing is vectorised (SSE4, AVX2).

The child has put the library's side directory first on its path (see :mod:`pipetune.side`).
"""

from __future__ import annotations

from pipetune.backends.pillow import load, require_pillow

__all__ = ["load", "require"]


def require() -> None:
    """See :mod:`pipetune.backends.contract`."""
    require_pillow(simd=True)
