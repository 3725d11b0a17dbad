from __future__ import annotations

import errno

import numpy as np
import pytest

pytest.importorskip("torch", reason="decoders handle tensors")

from pipetune.decoders.contract import Photo, Window
from pipetune.loaders.trial import trial_of
from tests.photo_set import PHOTOS, scan

IMAGE = scan(PHOTOS).images[0]


def raising(error: Exception | None) -> object:
    def load(photo: Photo, window: Window, out: np.ndarray) -> None:
        assert photo.path == IMAGE.path
        assert tuple(window(photo.height, photo.width)) == (0, 0, photo.height, photo.width, False)
        if error is not None:
            raise error

    return load


@pytest.mark.parametrize(("error", "reason"), [(None, None), (ValueError("bad"), "bad"), (KeyError(), "KeyError")])
def test_the_reason_why_an_image_does_not_decode(error: Exception | None, reason: str | None) -> None:
    assert trial_of(raising(error))(IMAGE) == reason  # type: ignore[arg-type]


def test_a_machine_that_lacks_something_raises() -> None:
    with pytest.raises(OSError, match="open files"):
        trial_of(raising(OSError(errno.EMFILE, "too many open files")))(IMAGE)  # type: ignore[arg-type]
