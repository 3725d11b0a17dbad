"""jpeg-roi-fast: jpeg-roi with shortcuts that change pixels a little.

A crop that is twice the training size or more is decoded at half, a quarter or an eighth of its size (from the low
frequencies alone), the inverse transform is libjpeg's fast one, and chroma is repeated, not interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.backends import jpeg_roi, pillow
from pipetune.backends.contract import Loader, Trial
from pipetune.backends.jpeg_roi_library import require_library
from pipetune.backends.layout import Array
from pipetune.backends.loading import open_decoding
from pipetune.backends.photos import Files, Photo, Window, trial_of
from pipetune.datasets.index import ImageSet
from pipetune.records import Candidate, Workload


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """See :mod:`pipetune.backends.contract`."""
    require_library()  # before any worker is started
    return open_decoding(candidate, workload, images, load, fill_some)


def open_trial(workload: Workload) -> Trial:
    """See :mod:`pipetune.backends.contract`."""
    return trial_of(load)


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode the crop, reduced where that suffices, resize (bilinear, antialiased) and flip."""
    if not jpeg_roi.decode_crop(photo, window, out, approximate=True):
        pillow.load(photo, window, out)


def fill_some(files: Files, tickets: Sequence[int], seed: int, samples: Array) -> int:
    """See :data:`pipetune.backends.photos.FillFunction`."""
    return jpeg_roi.fill_crops(files, tickets, seed, samples, approximate=True)
