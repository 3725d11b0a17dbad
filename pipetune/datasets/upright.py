"""How an image is turned upright, by the orientation that its header has (see :mod:`pipetune.datasets.image_header`).

Why not Pillow's ``ImageOps.exif_transpose``: it ends with an error where EXIF is damaged that no other decoder looks
at, and takes an orientation from XMP, too, unlike the others.
"""

from __future__ import annotations

#: EXIF orientation -> the name of a ``PIL.Image.Transpose``.
TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
