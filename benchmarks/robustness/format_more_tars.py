"""Tar files that grew, come from other tools, or have folders that are no classes. See ``formats.py``."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from benchmarks.robustness.format_parts import case, labelled, mask, photo, tar


def _in_folders(folder: Path, names: tuple[str, ...], labels: tuple[int, ...]) -> Path:
    pairs = zip(names, labels, strict=True)
    return tar(folder / "a.tar", [(f"{name}/{n}.jpg", photo(label, n)) for name, label in pairs for n in range(3)])


@case(9, "the classes are the numbers that the folders are called")
def folders_called_by_numbers(folder: Path) -> Path:
    return _in_folders(folder, ("1", "10", "2"), (1, 10, 2))


@case(9, "no KEY.cls: the classes are the folders in the members' names")
def two_folders_with_one_number(folder: Path) -> Path:
    return _in_folders(folder, ("01", "1", "2"), (0, 1, 2))


@case(9, "'.ipynb_checkpoints' is taken for a class")
def a_hidden_folder_among_classes(folder: Path) -> Path:
    return _in_folders(folder, (".ipynb_checkpoints", "ant", "bee"), (0, 1, 2))


@case(
    8,
    r"8 other \(8 json\); no KEY.cls: the classes are the folders",
    labelled=False,
)
def folders_of_parts_and_labels_in_json(folder: Path) -> Path:
    members = [(f"part{n // 4}/{n}.{e}", d) for n in range(8) for e, d in (("jpg", photo(n, n)), ("json", b"{}"))]
    return tar(folder / "a.tar", members)


@case(9)
def a_sample_appended_under_an_old_key(folder: Path) -> Path:
    return tar(folder / "a.tar", [*labelled(), ("0000.jpg", photo(1, 77)), ("0000.cls", b"1")])


@case(8, "a.tar/0000.cls' .a label without an image")
def a_label_appended_under_an_old_key(folder: Path) -> Path:
    return tar(folder / "a.tar", [*labelled(), ("0000.cls", b"1")])


@case(8, "damaged after 8 images: no header at byte .*, and data behind it")
def two_archives_one_after_the_other(folder: Path) -> Path:
    first = tar(folder / "a.tar", labelled()).read_bytes()
    (folder / "a.tar").write_bytes(first + first)
    return folder / "a.tar"


@case(7, "0000.jpg' .is empty")
def an_empty_photo_beside_its_mask(folder: Path) -> Path:
    members = [(name, b"" if name == "0000.jpg" else data) for name, data in labelled(png=mask)]
    return tar(folder / "a.tar", members)


@case(8, "the classes are the folders|8 other .8 class.*no labels found", labelled=False)
def labels_called_class(folder: Path) -> Path:
    members = [(f"{n}.{e}", d) for n in range(8) for e, d in (("jpg", photo(n % 2, n)), ("class", b"%d" % (n % 2)))]
    return tar(folder / "a.tar", members)


@case(8)
def attributes_in_pax_headers(folder: Path) -> Path:
    with tarfile.open(folder / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in labelled():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(data), {"SCHILY.xattr.user.x": "v" * 500, "comment": "x"}
            archive.addfile(info, io.BytesIO(data))
    return folder / "a.tar"


@case(8)
def contiguous_members(folder: Path) -> Path:
    with tarfile.open(folder / "a.tar", "w") as archive:
        for name, data in labelled():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), tarfile.CONTTYPE
            archive.addfile(info, io.BytesIO(data))
    return folder / "a.tar"


@case(8)
def an_incremental_backup_by_gnu_tar(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir()
    for name, data in labelled():
        (source / name).write_bytes(data)
    options = ["--listed-incremental", str(folder / "snapshot"), "-f", str(folder / "a.tar"), "-C", str(source), "."]
    subprocess.run(["tar", "-c", *options], check=True)
    return folder / "a.tar"


for _name, _texts, _used, _words in (
    ("utf-16", ("0".encode("utf-16"), "1".encode("utf-16")), 0, "a label that is no text"),
    ("with a zero byte", (b"0\0", b"1\0"), 0, "a label that is no text"),
    ("truth", (b"False", b"True"), 8, "8 matched"),
    ("one minus sign of typographers", (b"0", "−1".encode()), 0, "labels are numbers and names"),
):

    def _texts_of_labels(folder: Path, texts: tuple[bytes, bytes] = _texts) -> Path:
        return tar(folder / "a.tar", labelled(write=lambda label: texts[label]))

    _texts_of_labels.__name__ = f"texts of labels: {_name}"
    case(_used, _words)(_texts_of_labels)


@case(16, "a-00001-of-00003.tar' .belongs to the data set by the others' names")
def a_numbered_shard_that_is_missing(folder: Path) -> Path:
    for number in (0, 2):
        tar(folder / f"a-0000{number}-of-00003.tar", labelled())
    return folder
