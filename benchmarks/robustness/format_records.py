"""TFRecord, RecordIO, MDS and pixels: made by the formats' own libraries or by their layouts. See ``formats.py``."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

from benchmarks.robustness.format_parts import case, example, mask, mds, part, photo, record


def examples(count: int = 8, **more: Any) -> bytes:
    return b"".join(
        example(image__encoded=[photo(n % 2, n)], image__class__label=[n % 2], image__format=[b"jpeg"], **more)
        for n in range(count)
    )


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


for _file in ("a.tfrecord", "a.tfrecords", "a.tfrecord-00000-of-00001", "train-00000-of-00001", "A.TFRECORD"):

    def _tfrecord_names(folder: Path, name: str = _file) -> Path:
        write(folder / name, examples())
        return folder

    _tfrecord_names.__name__ = f"tfrecord name {_file}"
    case(8, format="tfrecord")(_tfrecord_names)


@case(8, format="tfrecord")
def tfds_names_and_files(folder: Path) -> Path:
    for number in range(2):
        data = b"".join(example(image=[photo(n % 2, n)], label=[n % 2]) for n in range(4 * number, 4 * number + 4))
        write(folder / f"cats-train.tfrecord-0000{number}-of-00002", data)
    write(folder / "dataset_info.json", b"{}")
    write(folder / "features.json", b"{}")
    return folder


@case(0, r"several parts of a data set: train \(1\), val \(1\)", format="tfrecord")
def imagenet_names_of_both_parts(folder: Path) -> Path:
    write(folder / "train-00000-of-01024", examples())
    write(folder / "validation-00000-of-00128", examples())
    return folder


@case(0, "no images in", format="tfrecord")
def a_numbered_name_of_another_format(folder: Path) -> Path:
    write(folder / "part-00000-of-00001", b"a,b\n1,2\n" * 10)
    return folder


@case(0, "holds text, and labels are integers", format="tfrecord")
def tfrecord_labels_of_text(folder: Path) -> Path:
    return write(folder / "a.tfrecord", b"".join(example(image=[photo(n)], label=[b"dog"]) for n in range(4)))


@case(0, "has 2 labels in 'label'", format="tfrecord")
def tfrecord_one_hot(folder: Path) -> Path:
    data = b"".join(example(image=[photo(n % 2)], label=[int(n % 2 == 0), n % 2]) for n in range(4))
    return write(folder / "a.tfrecord", data)


@case(4, "4 images, no labels found", format="tfrecord", labelled=False)
def tfrecord_without_labels(folder: Path) -> Path:
    return write(folder / "a.tfrecord", b"".join(example(image=[photo(n)], width=[32]) for n in range(4)))


@case(3, "has no label", format="tfrecord")
def one_record_without_a_label(folder: Path) -> Path:
    data = b"".join(example(image=[photo(n)], label=[n]) for n in range(3))
    return write(folder / "a.tfrecord", data + example(image=[photo(3)], width=[32]))


@case(0, "has 2 images in 'image'", format="tfrecord")
def tfrecord_with_two_images(folder: Path) -> Path:
    return write(folder / "a.tfrecord", example(image=[photo(0), photo(1)], label=[0]))


@case(0, "not a JPEG, PNG or WebP", format="tfrecord")
def tfrecord_with_raw_pixels(folder: Path) -> Path:
    return write(folder / "a.tfrecord", example(image_raw=[bytes(3072)], label=[0]))


@case(0, "is compressed.*gunzip .*a.tfrecord.gz", format="tfrecord")
def tfrecord_gz(folder: Path) -> Path:
    write(folder / "a.tfrecord.gz", gzip.compress(examples()))
    return folder


@case(0, r"is compressed \(gz\)", format="tfrecord")
def gzip_that_is_called_tfrecord(folder: Path) -> Path:
    return write(folder / "a.tfrecord", gzip.compress(examples()))


@case(8, "no feature of integers is called .*image/object/class/label", format="tfrecord", labelled=False)
def tfrecord_for_detection(folder: Path) -> Path:
    data = (example(image__encoded=[photo(n % 2, n)], image__object__class__label=[n % 2, 1]) for n in range(8))
    return write(folder / "a.tfrecord", b"".join(data))


@case(8, "no feature of integers is called .*labels", format="tfrecord", labelled=False)
def tfrecord_labels_under_another_name(folder: Path) -> Path:
    data = (example(image=[photo(n % 2, n)], labels=[n % 2]) for n in range(8))
    return write(folder / "a.tfrecord", b"".join(data))


@case(8, "00001-of-00003' .belongs to the data set.*2 shards are damaged or missing", format="tfrecord")
def tfrecords_of_which_two_are_missing(folder: Path) -> Path:
    write(folder / "x-train.tfrecord-00000-of-00003", examples())
    return folder


@case(8, format="tfrecord")
def tfrecord_index_files_beside(folder: Path) -> Path:
    write(folder / "a.tfrecord.idx", b"0 100\n")
    write(folder / "a.tfrecord", examples())
    return folder


@case(5, "1 shard is damaged", format="tfrecord")
def a_tfrecord_that_is_cut_off(folder: Path) -> Path:
    return write(folder / "a.tfrecord", examples(6)[:-40])


@case(8, format="recordio")
def recordio(folder: Path) -> Path:
    return write(folder / "a.rec", b"".join(record(photo(n % 2, n), n % 2) for n in range(8)))


@case(8, format="recordio")
def recordio_with_labels_in_arrays_of_one(folder: Path) -> Path:
    return write(folder / "a.rec", b"".join(record(photo(n % 2, n), 0, (n % 2,)) for n in range(8)))


@case(0, r"has 2 labels \(one-hot, or a detection record\)", format="recordio")
def recordio_one_hot(folder: Path) -> Path:
    return write(folder / "a.rec", b"".join(record(photo(n % 2), 0, (1 - n % 2, n % 2)) for n in range(8)))


@case(0, r"has 7 labels \(one-hot, or a detection record\)", format="recordio")
def recordio_detection(folder: Path) -> Path:
    boxes = (0.1, 0.1, 0.9, 0.9)
    return write(folder / "a.rec", b"".join(record(photo(n % 2), 0, (2, 5, n % 2, *boxes)) for n in range(8)))


@case(8, "1 other .1 range of numbers", format="recordio")
def recordio_of_faces(folder: Path) -> Path:
    images = b"".join(record(photo(n % 2, n), 0, (n % 2, 7.0)) for n in range(8))
    return write(folder / "a.rec", record(b"", 0, (9.0, 11.0)) + images)


@case(4, "is stored in several parts", format="recordio")
def recordio_in_several_parts(folder: Path) -> Path:
    images = b"".join(record(photo(n, n), n) for n in range(4))
    return write(folder / "a.rec", part(b"a" * 40, 1) + part(b"b", 3) + images)


@case(3, "a label of 0.5, which is no class", format="recordio")
def recordio_with_a_fraction(folder: Path) -> Path:
    return write(folder / "a.rec", record(photo(0), 0.5) + b"".join(record(photo(n), n) for n in range(3)))


def samples(**more: Any) -> list[dict[str, Any]]:
    return [{"image": photo(n % 2, n), "label": n % 2, **{k: v(n) for k, v in more.items()}} for n in range(8)]


@case(8, format="mds")
def mds_jpeg_and_int(folder: Path) -> Path:
    return mds(folder / "a", {"image": "jpeg", "label": "int"}, samples())


@case(8, format="mds")
def mds_bytes_and_int(folder: Path) -> Path:
    return mds(folder / "a", {"image": "bytes", "label": "int"}, samples())


@case(8, "columns that are not read: caption", format="mds")
def mds_with_captions(folder: Path) -> Path:
    columns = {"image": "bytes", "label": "int", "caption": "str"}
    return mds(folder / "a", columns, samples(caption=lambda n: "a cat"))


@case(8, "no column of integers is called label.*id", format="mds", labelled=False)
def mds_with_a_number_that_is_no_label(folder: Path) -> Path:
    rows = [{"image": photo(n % 2, n), "id": 100 + n} for n in range(8)]
    return mds(folder / "a", {"image": "bytes", "id": "int"}, rows)


@case(0, "its column 'label' holds str, and labels are integers", format="mds")
def mds_with_text_labels(folder: Path) -> Path:
    rows = [{"image": photo(n % 2, n), "label": "cat"} for n in range(4)]
    return mds(folder / "a", {"image": "bytes", "label": "str"}, rows)


@case(8, "columns that are not read: mask", format="mds")
def mds_with_masks(folder: Path) -> Path:
    return mds(folder / "a", {"image": "jpeg", "label": "int", "mask": "png"}, samples(mask=mask))


@case(0, "any of its columns left, right may be the image", format="mds")
def mds_with_two_views(folder: Path) -> Path:
    rows = [{"left": photo(0), "right": photo(1), "label": 0}]
    return mds(folder / "a", {"left": "bytes", "right": "bytes", "label": "int"}, rows)


@case(0, "no column of encoded images among", format="mds")
def mds_with_arrays(folder: Path) -> Path:
    return mds(folder / "a", {"caption": "str", "label": "int"}, [{"caption": "x", "label": 0}])


@case(0, r"is compressed.*zstd -d --rm", format="mds")
def mds_zstd(folder: Path) -> Path:
    return mds(folder / "a", {"image": "bytes", "label": "int"}, samples(), "zstd")


@case(0, r"is compressed.*gunzip ", format="mds")
def mds_gz(folder: Path) -> Path:
    return mds(folder / "a", {"image": "bytes", "label": "int"}, samples(), "gz")


@case(8, "is named in index.json, and is not there", format="mds")
def mds_with_a_shard_missing(folder: Path) -> Path:
    made = mds(folder / "a", {"image": "bytes", "label": "int"}, samples())
    index = made / "index.json"
    described = json.loads(index.read_text())
    described["shards"] += json.loads(json.dumps(described["shards"]).replace("shard.00000", "shard.00001"))
    index.write_text(json.dumps(described))
    return made


@case(4, "shard.00001.mds' .is not named in index.json, so streaming does not read it", format="mds")
def mds_with_a_shard_of_an_earlier_writer(folder: Path) -> Path:
    made = mds(folder / "a", {"image": "bytes", "label": "int"}, samples()[:4])
    (made / "shard.00001.mds").write_bytes((made / "shard.00000.mds").read_bytes())
    return made


@case(8, format="pixels")
def pixels_by_numpy(folder: Path) -> Path:
    import numpy as np
    from PIL import Image

    images = [np.asarray(Image.open(io.BytesIO(photo(n % 2, n))).convert("RGB")) for n in range(8)]
    np.save(folder / "a.pixels.npy", np.stack(images))
    np.save(folder / "a.labels.npy", np.arange(8, dtype=np.int64) % 2)
    return folder / "a.pixels.npy"


for _format in ("webdataset", "recordio", "tfrecord", "mds", "raw"):

    def _packed(folder: Path, name: str = _format) -> Path:
        from pipetune.packing.options import PackOptions, pixels_of
        from pipetune.packing.prepare import PackObserver
        from pipetune.packing.run import pack

        for number in range(8):
            write(folder / "source" / ("ant", "bee")[number % 2] / f"{number}.x.jpg", photo(number % 2, number))
        pixels = pixels_of(
            shorter_edge=32 if name == "raw" else None,
            longer_edge=None,
            lossless=False,
            as_is=False,
            quality=None,
            subsampling=None,
            upright=False,
            enlarge=False,
            raw=name == "raw",
        )
        options = PackOptions(source=str(folder / "source"), out=folder / "out", format=name, pixels=pixels, threads=1)
        pack(options, PackObserver(), cores=1)
        return folder / "out"

    _packed.__name__ = f"packed by pipetune as {_format}"
    kinds = {"webdataset": "tar", "raw": "pixels"}
    case(8, format=kinds.get(_format, _format))(_packed)
