"""Whether one image decodes, tried with the function that the loader uses."""

from __future__ import annotations

import numpy as np

from pipetune.datasets.index import RAW, ImageFile
from pipetune.decoders.contract import LoadFunction, Photo, Trial, is_shortage
from pipetune.decoders.crop import Crop

#: Edge (px) to which a trial resizes: only decoding matters.
_SIZE = 8


def trial_of(load: LoadFunction) -> Trial:
    """A trial with the function of a decoder."""

    def try_decode(image: ImageFile) -> str | None:
        out = np.empty((_SIZE, _SIZE, 3), np.uint8)
        width, height = image.upright_size
        photo = Photo(
            image.path, image.orientation, image.format == "jpeg", height, width, image.shard, image.start,
            image.size_bytes, is_raw=image.format == RAW,
        )  # fmt: skip
        try:
            load(photo, lambda height, width: Crop(0, 0, height, width, False), out)
        except Exception as error:  # each decoder has exceptions of its own
            if is_shortage(error):
                raise
            return str(error) or type(error).__name__
        return None

    return try_decode
