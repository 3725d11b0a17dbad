"""Are labels and counts of every kind of shard and folder those of the format's own library, or is it said why not?

Promise: every shard has its own library's counts and labels, or one line says why not; 0 silent differences.

Shards and folders are made by webdataset, GNU tar, MosaicML's streaming and by hand, after public bug reports and their
siblings: masks beside photographs, dots in keys, keys that come twice, labels that are no whole numbers, links, sparse
files, compressed files, usual and unusual names, folders that are no classes. The colour of an image is its class.
pipetune reads each; webdataset, streaming, ImageFolder or an independent reader of the layout does, too. A case holds
where both see the same images and labels, or where pipetune says the words that the case names; and in both cases each
image that is used has the label of its colour, the count is right, and ``members = used + rejected + other``,
``labels = matched + unmatched``.
streaming is optional (``pip install mosaicml-streaming``): without it MDS shards are written by hand, and read by the
layout. ``--quick`` is the full run: about half a minute.
"""

from __future__ import annotations

import hashlib
import re
import struct
import sys
import tempfile
import warnings
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

EQUAL, TOLD, SILENT = "equal", "told", "silent difference"
LEAST_CASES = 60
_IMAGE_ENDINGS = ("jpg", "jpeg", "png", "webp")
Pairs = Counter[tuple[str, int]]
"""(hash of an image, label) -> how often."""


def main(options: Namespace) -> bench.Result:
    import benchmarks.robustness.format_folders
    import benchmarks.robustness.format_labels
    import benchmarks.robustness.format_more_tars
    import benchmarks.robustness.format_records
    import benchmarks.robustness.format_tars  # noqa: F401
    from benchmarks.robustness.format_parts import CASES

    rows, failures = [], []
    for one in CASES:
        with tempfile.TemporaryDirectory(prefix="pipetune-formats-") as scratch:
            verdict, text = judge(one, Path(scratch))
            text = text.replace(scratch, "DIR")
        rows.append([one.format, one.name, verdict, text])
        if verdict not in (EQUAL, TOLD):
            failures.append(f"{one.format}: {one.name}: {verdict}: {text}")
    print(bench.table(["format", "case", "verdict", "said"], [[*row[:3], row[3][:90]] for row in rows]))
    counts = Counter(str(row[2]) for row in rows)
    for text in failures:
        print(f"failed: {text}")
    print(f"{len(rows)} cases: {counts[EQUAL]} equal, {counts[TOLD]} told, {len(failures)} failed")
    return bench.Result(
        not failures and len(rows) >= LEAST_CASES,
        {
            "cases": len(rows),
            "equal": counts[EQUAL],
            "told": counts[TOLD],
            "failures": failures,
            "streaming": _has_streaming(),
            "rows": [{"format": row[0], "case": row[1], "verdict": row[2], "said": row[3]} for row in rows],
        },
    )


def judge(one: Any, folder: Path) -> tuple[str, str]:
    """What becomes of a case, and what pipetune said."""
    from pipetune.datasets.image_notes import list_image_notes
    from pipetune.datasets.open_dataset import open_dataset
    from pipetune.errors import UsageError

    path = one.build(folder)
    try:
        images = open_dataset(str(path), seed=0, limit_bytes=1 << 40, workers=1)
    except UsageError as error:
        said, used = f"{error}", 0
        if "\n" in said:
            return "said in several lines", said
        pairs: Pairs = Counter()
    else:
        used = len(images.images)
        said = "; ".join([*list_image_notes(images), *(f"{place!r} ({reason})" for place, reason in images.skipped)])
        pairs, wrong = read_images(images, check=one.is_labelled)
        if wrong:
            return "wrong label", f"{wrong[0]}; {said}"
        audit = images.audit
        assert audit is not None
        if audit.members != audit.used + audit.rejected + audit.other_count:
            return "members do not add up", repr(audit)
        if audit.labels != audit.matched + audit.unmatched or audit.used != used:
            return "labels do not add up", repr(audit)
    if used != one.used:
        return f"{used} images instead of {one.used}", said
    theirs = read_by_library(one.format, path)
    if one.words and not re.search(one.words, said):
        return SILENT, said or "nothing"
    if theirs is not None and theirs == pairs:
        return EQUAL, said
    if theirs is None and not one.words:
        return "nothing to compare with", said
    return (
        (TOLD, said)
        if one.words or (one.is_labelled and _is_only_renamed(theirs, pairs))
        else (SILENT, f"{said}; {theirs} {pairs}")
    )


def _is_only_renamed(theirs: Pairs | None, ours: Pairs) -> bool:
    """Whether the library sees no labels of these images, where folders are the classes."""
    return (
        theirs is not None
        and {data for data, _ in theirs} == {data for data, _ in ours}
        and all(label < 0 for _, label in theirs)
    )


def read_images(images: Any, *, check: bool) -> tuple[Pairs, list[str]]:
    """Images and labels by pipetune's index, and those whose label is not their colour's."""
    from benchmarks.robustness.format_parts import COLOURS, class_of_picture

    pairs: Pairs = Counter()
    wrong = []
    for image in images.images:
        with open(image.file, "rb") as file:
            file.seek(image.start)
            data = file.read(image.size_bytes)
        pairs[_hash(data), image.label] += 1
        if image.format == "raw":
            centre = data[len(data) // 2 : len(data) // 2 + 3]
            label = next(
                (
                    n
                    for n, colour in enumerate(COLOURS)
                    if all(abs(a - b) < 25 for a, b in zip(centre, colour, strict=True))
                ),
                None,
            )
        else:
            label = class_of_picture(data)
        if label is None or (check and label != image.label):
            wrong.append(f"{image.path} has label {image.label}, and its colour is class {label}")
    return pairs, wrong


def read_by_library(format: str, path: Path) -> Pairs | None:
    """Images and labels by the format's own library, -1 where an image has none; ``None``: it raises."""
    readers = {
        "tar": _by_webdataset,
        "tfrecord": _by_layout_tfrecord,
        "recordio": _by_layout_recordio,
        "mds": _by_streaming,
        "pixels": _by_numpy,
        "folder": _by_imagefolder,
    }
    endings = {
        "tar": "*.tar",
        "tfrecord": "*",
        "recordio": "*.rec",
        "mds": "*.mds",
        "pixels": "*.pixels.npy",
        "folder": "*",
    }
    files = sorted(path.glob(endings.get(format, "*"))) if path.is_dir() else [path]
    skipped = (".json", ".jsonl", ".idx", ".lst")
    files = [one for one in files if one.is_file() and one.suffix not in skipped]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return readers[format](path, files)
    except Exception:
        return None


def _by_webdataset(path: Path, files: list[Path]) -> Pairs:
    import webdataset

    pairs: Pairs = Counter()
    for sample in webdataset.WebDataset([str(one) for one in files], shardshuffle=False, empty_check=False):
        image = next((sample[ending] for ending in _IMAGE_ENDINGS if ending in sample), None)
        if image is None:  # webdataset is told the ending where it is another one
            others = [value for name, value in sample.items() if name.endswith(_IMAGE_ENDINGS)]
            image = others[0] if len(others) == 1 else None
        if image is not None:
            pairs[_hash(image), int(sample.get("cls", b"-1"))] += 1
    return pairs


def _by_layout_tfrecord(path: Path, files: list[Path]) -> Pairs:
    """A reader of its own: fields are split by recursion, and nothing is shared with pipetune's."""
    pairs: Pairs = Counter()
    for file in files:
        data = file.read_bytes()
        at = 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            payload = data[at + 12 : at + 12 + length]
            if len(payload) < length:
                raise ValueError("cut off")
            features = {}
            for _, entry in _split(_split(payload)[0][1]):
                (_, name), (_, value) = _split(entry)
                features[name.decode()] = _split(value)[0]
            image = next(features[name] for name in ("image/encoded", "image") if name in features)
            kind, label = next(
                (features[n] for n in ("image/class/label", "label") if n in features), (3, b"\x0a\x01\xff")
            )
            values = _split(label)
            if kind != 3 or len(values[0][1]) != 1:
                raise ValueError("labels that are not one integer")
            number = values[0][1][0]
            pairs[_hash(_split(image[1])[0][1]), -1 if number == 0xFF else number] += 1
            at += 12 + length + 4
    return pairs


def _split(data: bytes) -> list[tuple[int, bytes]]:
    fields, at = [], 0
    while at < len(data):
        number, at = data[at] >> 3, at + 1
        length = shift = 0
        while True:
            byte, at = data[at], at + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        fields.append((number, data[at : at + length]))
        at += length
    return fields


def _by_layout_recordio(path: Path, files: list[Path]) -> Pairs:
    """As MXNet's ``unpack`` and ``ImageRecordIter`` read it, which refuses other widths than one."""
    pairs: Pairs = Counter()
    for file in files:
        data, at = file.read_bytes(), 0
        while at < len(data):
            _, field = struct.unpack_from("<II", data, at)
            payload = data[at + 8 : at + 8 + (field & 0x1FFFFFFF)]
            flag, label, _, _ = struct.unpack_from("<IfQQ", payload)
            if field >> 29 or flag > 1:
                raise ValueError("parts, or more labels than one")
            if flag:
                (label,) = struct.unpack_from("<f", payload, 24)
            pairs[_hash(payload[24 + 4 * flag :]), int(label)] += 1
            at += 8 + len(payload) + -len(payload) % 4
    return pairs


def _by_streaming(path: Path, files: list[Path]) -> Pairs:
    pairs: Pairs = Counter()
    if _has_streaming():
        from streaming import LocalDataset

        for sample in LocalDataset(str(path)):
            pairs[_hash(_read_bytes(sample["image"])), int(sample.get("label", -1))] += 1
        return pairs
    for file in files:  # of the columns image and label alone
        data = file.read_bytes()
        (count,) = struct.unpack_from("<I", data)
        offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        for start in offsets[:-1]:
            (size,) = struct.unpack_from("<I", data, start)
            (label,) = struct.unpack_from("<q", data, start + 4 + size)
            pairs[_hash(data[start + 4 : start + 4 + size]), label] += 1
    return pairs


def _read_bytes(image: Any) -> bytes:
    return image if isinstance(image, bytes) else bytes(image.fp.getvalue())


def _by_numpy(path: Path, files: list[Path]) -> Pairs:
    import numpy as np

    pairs: Pairs = Counter()
    for file in files:
        labels = np.load(str(file).replace(".pixels.npy", ".labels.npy"))
        for pixels, label in zip(np.load(file), labels, strict=True):
            pairs[_hash(pixels.tobytes()), int(label)] += 1
    return pairs


def _by_imagefolder(path: Path, files: list[Path]) -> Pairs:
    from torchvision.datasets import ImageFolder

    return Counter((_hash(Path(image).read_bytes()), label) for image, label in ImageFolder(str(path)).samples)


def _has_streaming() -> bool:
    try:
        import streaming  # noqa: F401
    except ImportError:
        return False
    return True


def _hash(data: bytes) -> str:
    """Without the zeros behind an image, which a sparse member does not store."""
    return hashlib.blake2b(data.rstrip(b"\0"), digest_size=8).hexdigest()


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
