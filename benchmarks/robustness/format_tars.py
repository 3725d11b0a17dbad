"""Tar files and folders of them: made by webdataset, GNU tar, ``tarfile`` and by hand. See ``formats.py``."""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from benchmarks.robustness.format_parts import case, labelled, link, mask, photo, tar


def written_by_webdataset(path: Path, samples: list[dict[str, Any]]) -> Path:
    import webdataset

    with webdataset.TarWriter(str(path), encoder=False) as writer:
        for sample in samples:
            writer.write(sample)
    return path


@case(8)
def webdataset_jpg_and_cls(folder: Path) -> Path:
    samples: list[dict[str, Any]] = [
        {"__key__": f"{n:04}", "jpg": photo(n % 2, n), "cls": b"%d" % (n % 2)} for n in range(8)
    ]
    return written_by_webdataset(folder / "a.tar", samples)


@case(8)
def webdataset_png_and_json(folder: Path) -> Path:
    samples: list[dict[str, Any]] = [
        {"__key__": f"x/{n}", "png": photo(n % 2, n, "PNG"), "cls": b"%d\n" % (n % 2), "json": b"{}"} for n in range(8)
    ]
    return written_by_webdataset(folder / "a.tar", samples)


@case(27)
def webdataset_in_two_shards_with_the_same_keys(folder: Path) -> Path:
    for shard in range(3):
        labels = range(9 * shard, 9 * shard + 9)
        samples: list[dict[str, Any]] = [
            {"__key__": f"{n}", "webp": photo(label, label, "WEBP"), "cls": b"%d" % label}
            for n, label in enumerate(labels)
        ]
        written_by_webdataset(folder / f"{shard}.tar", samples)
    return folder


@case(8, "8 rejected.*8 matched")
def masks_beside_photos(folder: Path) -> Path:
    return tar(folder / "a.tar", labelled(seg__png=mask))


@case(8, "a second image of its sample, whose image is 0000.jpg")
def masks_with_a_plain_ending(folder: Path) -> Path:
    return tar(folder / "a.tar", labelled(png=mask))


@case(6, "the only image of its sample|a second image|none of which is KEY.jpg")
def a_mask_without_its_photo(folder: Path) -> Path:
    members = list(labelled(seg__png=mask))
    return tar(folder / "a.tar", [one for one in members if one[0] not in ("0003.jpg", "0005.jpg")])


@case(4)
def one_image_under_another_ending(folder: Path) -> Path:
    members = [(f"{n}.{e}", d) for n in range(4) for e, d in (("image.png", photo(n, n, "PNG")), ("cls", b"%d" % n))]
    return tar(folder / "a.tar", members)


@case(0, "none of which is KEY.jpg")
def two_views_and_neither_is_the_image(folder: Path) -> Path:
    members = [
        (f"{n}.{e}", d)
        for n in range(4)
        for e, d in (("left.jpg", photo(n)), ("right.jpg", photo(n, 1)), ("cls", b"0"))
    ]
    return tar(folder / "a.tar", members)


@case(8, "16 members have dots in the name")
def dots_in_keys(folder: Path) -> Path:
    members = [
        (f"train.v1/IMG_20.05.{n:02}.{e}", d)
        for n in range(8)
        for e, d in (("jpg", photo(n % 2, n)), ("cls", b"%d" % (n % 2)))
    ]
    return tar(folder / "a.tar", members)


@case(8, "8 members have dots in the name")
def dots_in_names_of_folders(folder: Path) -> Path:
    names = ("ant", "bee")
    return tar(folder / "a.tar", [(f"{names[n % 2]}/2020.01.{n}.jpg", photo(n % 2, n)) for n in range(8)])


@case(4, "a second image of its sample, or one without the first")
def dots_in_keys_and_masks(folder: Path) -> Path:
    members = [
        (f"a.{n}.{e}", d) for n in range(4) for e, d in (("jpg", photo(n, n)), ("seg.png", mask(n)), ("cls", b"%d" % n))
    ]
    return tar(folder / "a.tar", members)


@case(8)
def upper_case_endings(folder: Path) -> Path:
    return tar(folder / "a.tar", [(name.upper(), data) for name, data in labelled()])


@case(0, r"its key has \d members .(jpg|cls), so its label is not clear")
def one_key_for_all(folder: Path) -> Path:
    return tar(folder / "a.tar", [(f"same.{name[5:]}", data) for name, data in labelled()])


@case(3, "its key has 2 members .jpg")
def one_key_twice_in_succession(folder: Path) -> Path:
    members = [(f"{min(n, 3)}.{e}", d) for n in range(5) for e, d in (("jpg", photo(n, n)), ("cls", b"%d" % n))]
    return tar(folder / "a.tar", members)


@case(6)
def one_key_twice_with_others_between(folder: Path) -> Path:
    members = [(f"{n % 3}.{e}", d) for n in range(6) for e, d in (("jpg", photo(n, n)), ("cls", b"%d" % n))]
    return tar(folder / "a.tar", members)


def _class_folders(folder: Path) -> None:
    for name, label in (("ant", 0), ("bee", 1)):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            (folder / name / f"{number}.jpg").write_bytes(photo(label, number))


def gnu_tar(folder: Path, *options: str) -> Path:
    subprocess.run(["tar", "cf", str(folder / "a.tar"), *options], check=True, cwd=folder)
    return folder / "a.tar"


@case(12, "6 links were followed")
def hard_links_by_gnu_tar(folder: Path) -> Path:
    _class_folders(folder / "data")
    for path in sorted((folder / "data").glob("*/*.jpg")):
        os.link(path, path.with_name(f"again{path.name}"))
    return gnu_tar(folder, "-C", "data", ".")


@case(12, "6 links were followed")
def symbolic_links_by_gnu_tar(folder: Path) -> Path:
    _class_folders(folder / "data")
    for path in sorted((folder / "data").glob("*/*.jpg")):
        path.with_name(f"again{path.name}").symlink_to(path.name)
    return gnu_tar(folder, "-C", "data", ".")


@case(7, "a link to '/elsewhere/1.jpg', which is no member")
def links_that_lead_nowhere(folder: Path) -> Path:
    members = [(f"bee/{n}.jpg", photo(1, n)) for n in range(3)] + [(f"ant/{n}.jpg", photo(0, n)) for n in range(3)]
    return tar(
        folder / "a.tar",
        [
            *members,
            link("ant/9.jpg", "/elsewhere/1.jpg"),
            link("ant/8.jpg", "../ant/./2.jpg"),
            link("ant/7.jpg", "7.jpg"),
        ],
    )


@case(8, "4 links were followed")
def labels_that_are_links(folder: Path) -> Path:
    linked = {f"000{n}.cls": link(f"000{n}.cls", f"000{n - 4}.cls", tarfile.LNKTYPE) for n in range(4, 8)}
    return tar(folder / "a.tar", [linked.get(name, (name, data)) for name, data in labelled()])


@case(8)
def sparse_files_with_zeros_at_the_end(folder: Path) -> Path:
    _class_folders(folder / "data")
    for name, label in (("ant", 0), ("bee", 1)):
        with (folder / "data" / name / "holes.jpg").open("wb") as file:
            file.write(photo(label, 9))
            file.truncate(400_000)
    return gnu_tar(folder, "--sparse", "--format=gnu", "-C", "data", ".")


@case(7, "a sparse member with holes, which cannot be read at one place")
def sparse_files_with_holes(folder: Path) -> Path:
    _class_folders(folder / "data")
    image = photo(0, 8)
    with (folder / "data" / "ant" / "tail.jpg").open("wb") as file:
        file.write(image)
        file.truncate(1 << 20)
    with (folder / "data" / "ant" / "holes.jpg").open("wb") as file:
        file.write(image[:2] + (b"\xff\xfe\xff\xff" + bytes(0xFFFD)) * 20 + image[2:])
    subprocess.run(["fallocate", "--dig-holes", str(folder / "data/ant/holes.jpg")], check=False)
    return gnu_tar(folder, "--sparse", "--hole-detection=raw", "--format=posix", "-C", "data", ".")


@case(6, "a named pipe")
def a_named_pipe(folder: Path) -> Path:
    _class_folders(folder / "data")
    os.mkfifo(folder / "data" / "ant" / "pipe.jpg")
    return gnu_tar(folder, "-C", "data", ".")


@case(6, "the classes are the folders below 'train'")
def a_folder_around_all(folder: Path) -> Path:
    _class_folders(folder / "train")
    return gnu_tar(folder, "train")


@case(6)
def class_folders(folder: Path) -> Path:
    _class_folders(folder / "data")
    return gnu_tar(folder, "-C", "data", "ant", "bee")


@case(0, "its folders train, val are parts of a data set, and no classes")
def training_and_validation_in_one(folder: Path) -> Path:
    _class_folders(folder / "data" / "train")
    _class_folders(folder / "data" / "val")
    return gnu_tar(folder, "-C", "data", "train", "val")


@case(0, r"several parts of a data set: train \(2\), val \(1\)")
def shards_of_training_and_validation(folder: Path) -> Path:
    for name in ("set-train-000000", "set-train-000001", "set-validation-000000"):
        tar(folder / f"{name}.tar", labelled())
    return folder


@case(8, r"\.(gif|tiff|bmp) images are not read")
def other_image_formats(folder: Path) -> Path:
    members = [
        (f"{n}.{e}", d)
        for n, kind in enumerate(("gif", "tiff", "bmp"), 10)
        for e, d in ((kind, photo(0, n, kind.upper())), ("cls", b"0"))
    ]
    return tar(folder / "a.tar", [*labelled(), *members])


@case(0, r"is compressed \(.gz\)")
def compressed_members(folder: Path) -> Path:
    return tar(folder / "a.tar", [(f"{name}.gz", gzip.compress(data)) for name, data in labelled()])


@case(6, "the classes are the names of the tar files")
def archives_of_imagenet(folder: Path) -> Path:
    for label, name in enumerate(("n01440764", "n01443537")):
        tar(folder / f"{name}.tar", [(f"{name}_{n}.JPEG", photo(label, n)) for n in range(3)])
    return folder


@case(0, "its members are tar files: unpack it")
def a_tar_of_tars(folder: Path) -> Path:
    inner = [tar(folder / "in" / f"n0{label}.tar", [("1.jpg", photo(label))]) for label in range(2)]
    return tar(folder / "a.tar", [(path.name, path.read_bytes()) for path in inner])


@case(0, "its shards lie one folder deeper: name .*train")
def shards_one_folder_deeper(folder: Path) -> Path:
    tar(folder / "set" / "train" / "0.tar", labelled())
    return folder / "set"


@case(0, "1 shard lies beside folders such as")
def shards_beside_a_folder(folder: Path) -> Path:
    (folder / "logs").mkdir()
    tar(folder / "0.tar", labelled())
    return folder


@case(0, r"is compressed \(gz\).*mv .* && gunzip ")
def gzip_that_is_called_tar(folder: Path) -> Path:
    path = tar(folder / "a.tar", labelled())
    path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@case(0, r"is compressed.*gunzip .*\*.tar.gz|is compressed.*gunzip .*\*.gz")
def compressed_shards(folder: Path) -> Path:
    for number in range(2):
        (folder / f"{number}.tar.gz").write_bytes(gzip.compress(tar(folder / "in.tar", labelled()).read_bytes()))
    (folder / "in.tar").unlink()
    return folder


@case(0, r"is compressed.*zstd -d --rm .*a.tar.zst")
def zstd_shards(folder: Path) -> Path:
    (folder / "a.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    return folder


@case(8, "8 other .8 hidden")
def files_of_macos(folder: Path) -> Path:
    members = [one for name, data in labelled() for one in ((f"._{name}", b"\0\5\x16\7" + bytes(100)), (name, data))]
    return tar(folder / "a.tar", [one for one in members if not one[0].endswith("cls") or not one[0].startswith("._")])


@case(8)
def metadata_of_webdataset(folder: Path) -> Path:
    return tar(folder / "a.tar", [("__meta__/1.jpg", mask()), *labelled()])


@case(7, "1 shard is damaged")
def a_shard_that_is_cut_off(folder: Path) -> Path:
    path = tar(folder / "a.tar", [(f"ant/{n}.jpg", photo(0, n)) for n in range(8)] + [("bee/1.jpg", photo(1))])
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"ant/7.jpg") + 700])
    return path


@case(8)
def long_names(folder: Path) -> Path:
    return tar(folder / "a.tar", [(f"{'é' * 60}/{'b' * 90}/{name}", data) for name, data in labelled()])
