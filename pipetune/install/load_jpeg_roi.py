"""Loads the C library of jpeg-roi, for all who call its functions."""

from __future__ import annotations

import ctypes

from pipetune.errors import MissingPackageError
from pipetune.install.find import JPEG_ROI, find_jpeg_roi, side_directory, why_refused


def load_jpeg_roi() -> ctypes.CDLL:
    """The library.

    Raises:
        MissingPackageError: it has not been built, or others could have written it.
    """
    found = find_jpeg_roi()
    if found is None:
        refused = why_refused(side_directory(JPEG_ROI))
        if refused is not None:
            raise MissingPackageError(
                f"{JPEG_ROI} is not loaded: {refused}", hint=f"build your own: pipetune doctor --install {JPEG_ROI}"
            )
        raise MissingPackageError(f"{JPEG_ROI} is not built", hint=f"run: pipetune doctor --install {JPEG_ROI}")
    try:
        return ctypes.CDLL(found.path)
    except OSError as error:  # built on another machine, or libjpeg is gone
        raise MissingPackageError(
            f"{JPEG_ROI} does not load: {error}", hint=f"run: pipetune doctor --install {JPEG_ROI}"
        ) from error
