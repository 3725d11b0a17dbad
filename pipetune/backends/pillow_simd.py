"""Pillow-SIMD: the same code as :mod:`pipetune.backends.pillow` on a Pillow whose resizing is vectorised (SSE4, AVX2).

The child has put the library's side directory first on its path (see :mod:`pipetune.side`).
"""

from __future__ import annotations

from pipetune.backends.contract import Loader, Trial
from pipetune.backends.loading import open_decoding
from pipetune.backends.photos import trial_of
from pipetune.backends.pillow import load, require_pillow
from pipetune.datasets.index import ImageSet
from pipetune.records import Candidate, Workload


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """See :mod:`pipetune.backends.contract`."""
    require_pillow(simd=True)
    return open_decoding(candidate, workload, images, load)


def open_trial(workload: Workload) -> Trial:
    """See :mod:`pipetune.backends.contract`."""
    require_pillow(simd=True)
    return trial_of(load)
