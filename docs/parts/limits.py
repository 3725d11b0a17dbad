"""The limits for input that somebody else has made, as the package has them."""

from __future__ import annotations

from docs.parts.markdown import code, table
from pipetune.child import bad_images
from pipetune.datasets import folder_walk, image_header, image_scans, labels, mds, tar_shards, tfrecord, usable_image
from pipetune.records.redact import SECRET_NAMES
from pipetune.store.files import OWN_FILE, OWN_FOLDER
from pipetune.units import format_bytes
from pipetune.watching import metrics_server, options


def limits() -> str:
    """A row per limit: what is limited, to how much, and what happens beyond it."""
    rows = [
        ["size of an image file", format_bytes(usable_image.MAX_FILE_BYTES), "skipped and named"],
        ["pixels of an image", f"{image_header.MAX_PIXELS:,}", "skipped and named; Pillow refuses them as well"],
        ["read of a file in search of its header", f"{format_bytes(image_header.MAX_READ_BYTES)}, and "
         f"{image_header.MAX_STEPS:,} segments", "skipped and named"],
        ["scans of a JPEG", f"{image_scans.MOST_SCANS}", "skipped and named before a sweep; refused by "
         "jpeg-roi in a training"],
        ["time in which an image is decoded", f"{bad_images.LONGEST_S:g} s", "replaced and named, where a candidate "
         "has hung"],
        ["header of a member of a tar file", format_bytes(tar_shards._MAX_HEADER_BYTES),
         "the rest of the shard is left out, and named"],
        ["label file in a shard", format_bytes(tar_shards._MAX_LABEL_BYTES), "skipped and named"],
        ["samples of an MDS shard", f"{mds._MOST_SAMPLES:,}", "the shard is left out, and named"],
        ["fields of a message in a TFRecord file", f"{tfrecord._MOST_FIELDS:,}", "skipped and named"],
        ["class numbers in shards", f"{labels.MAX_CLASSES:,}", "skipped and named"],
        ["files and directories of a class folder without an image between them",
         f"{folder_walk.MAX_WITHOUT_IMAGE:,}", "the rest is not read, and the folder named"],
        ["connections to the metrics server", f"{metrics_server.MOST_CONNECTIONS} at a time, "
         f"{metrics_server.REQUEST_S:g} s for each part of a request", "closed"],
        ["readings in a window of a watch", f"{options.MAX_READINGS:,}", "refused before the start"],
    ]  # fmt: skip
    return table(["what", "limit", "beyond it"], rows)


def secrets() -> str:
    """What is taken for the name of a secret."""
    return ", ".join(code(name) for name in SECRET_NAMES)


def rights() -> str:
    """The permissions of a run folder."""
    return f"The folder has mode {code(f'{OWN_FOLDER:04o}')} and its files have {code(f'{OWN_FILE:04o}')}."
