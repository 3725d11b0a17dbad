"""The images that a sweep worked on, as its result has them."""

from __future__ import annotations

from pipetune.datasets.index import ImageSet
from pipetune.records.summaries import DatasetSummary


def summary_of(images: ImageSet, fingerprint: str) -> DatasetSummary:
    """The images as the result describes them.

    Args:
        images: in use.
        fingerprint: of the images that the sweep began with; some may have been replaced since.
    """
    width_px, height_px = images.median_size
    return {
        "name": images.name, "root": images.root, "images": len(images.images), "found_images": images.found_images,
        "classes": len(images.classes), "shards": len(images.files) if images.in_shards else 0,
        "plain": images.plain, "nested": images.is_nested, "empty_classes": list(images.empty_classes),
        "undecodable": list(images.undecodable), "skipped": images.skipped_count,
        "skipped_files": [{"path": path, "reason": reason} for path, reason in images.skipped],
        "audit": images.audit,
        "mean_bytes": images.mean_bytes, "median_width_px": width_px, "median_height_px": height_px,
        "fingerprint": fingerprint,
    }  # fmt: skip
