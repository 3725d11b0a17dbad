"""Label files of tar files: texts, places, and none. See ``formats.py``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.robustness.format_parts import case, labelled, photo, tar


@case(8, "8 matched")
def labels_behind_all_images(folder: Path) -> Path:
    return tar(folder / "a.tar", sorted(labelled(), key=lambda one: not one[0].endswith("jpg")))


@case(8, "8 matched")
def labels_before_all_images(folder: Path) -> Path:
    return tar(folder / "a.tar", sorted(labelled(), key=lambda one: one[0].endswith("jpg")))


@case(8, "no labels found: all are class 0; KEY.json is not read", labelled=False)
def labels_in_json_only(folder: Path) -> Path:
    members = [
        (f"{n}.{e}", d) for n in range(8) for e, d in (("jpg", photo(n % 2, n)), ("json", b'{"label": %d}' % (n % 2)))
    ]
    return tar(folder / "a.tar", members)


@case(8, "no labels found: all are class 0; KEY.txt", labelled=False)
def captions_only(folder: Path) -> Path:
    return tar(
        folder / "a.tar",
        [(f"{n}.{e}", photo(n, n) if e == "jpg" else b"dog") for n in range(8) for e in ("jpg", "txt")],
    )


@case(8, "8 images, no labels found: all are class 0", labelled=False)
def no_labels(folder: Path) -> Path:
    return tar(folder / "a.tar", [(f"{n}.jpg", photo(n, n)) for n in range(8)])


for _name, _text, _words in (
    ("decimal fractions", b"%d.0", "which is no whole number"),
    ("json", b'{"label": %d}', "which is JSON"),
    ("lists", b"[%d, 1]", "which is JSON"),
    ("two numbers", b"%d 1", "which is no whole number"),
    ("exponents", b"%de0", "which is no whole number"),
    ("two lines", b"%d\n1", "that has several lines"),
    ("pickled labels", b"\x80\x04K%d.", "a label that is no text"),
    ("negative", b"-%d1", "which is no class"),
    ("dates", b"2019010%d", "class numbers are below"),
    ("quoted", b'"%d"', "which is JSON"),
    ("words in an unknown encoding", b"caf\xe9%d", "a label that is no text"),
):

    def _label_texts(folder: Path, text: bytes = _text) -> Path:
        return tar(folder / "a.tar", labelled(write=lambda label: text.replace(b"%d", b"%d" % label)))

    _label_texts.__name__ = f"label_texts: {_name}"
    case(0, _words)(_label_texts)

for _name, _text in (
    ("white space", b" %d \r\n"),
    ("a sign", b"+%d"),
    ("leading zeros", b"00%d"),
    ("a byte-order mark", b"\xef\xbb\xbf%d"),
):

    def _whole_numbers(folder: Path, text: bytes = _text) -> Path:
        return tar(folder / "a.tar", labelled(write=lambda label: text.replace(b"%d", b"%d" % label)))

    _whole_numbers.__name__ = f"whole numbers: {_name}"
    case(8, "8 matched" if b"\xef" in _text else "")(_whole_numbers)


@case(23, "a label of 'unsure', and those of most images are numbers")
def one_odd_label(folder: Path) -> Path:
    texts = [b"%d" % (n // 2) for n in range(23)] + [b"unsure"]
    members = [
        (f"{n:03}.{e}", d) for n, text in enumerate(texts) for e, d in (("jpg", photo(n // 2, n)), ("cls", text))
    ]
    return tar(folder / "a.tar", members)


@case(7, "0003.jpg' .an empty label")
def one_empty_label(folder: Path) -> Path:
    return tar(folder / "a.tar", [(name, b"" if name == "0003.cls" else data) for name, data in labelled()])


@case(7, "0003.jpg' .has no label")
def one_label_missing(folder: Path) -> Path:
    return tar(folder / "a.tar", [one for one in labelled() if one[0] != "0003.cls"])


@case(7, "a label without an image")
def one_image_missing(folder: Path) -> Path:
    return tar(folder / "a.tar", [one for one in labelled() if one[0] != "0003.jpg"])


@case(8, "8 matched")
def labels_that_are_names(folder: Path) -> Path:
    return tar(folder / "a.tar", labelled(write=lambda label: (b"ant", b"bee")[label]))


@case(0, "labels are numbers and names")
def half_of_the_labels_are_names(folder: Path) -> Path:
    return tar(folder / "a.tar", labelled(write=lambda label: (b"0", b"bee")[label]))


@case(0, "is not KEY.cls|has no label")
def labels_of_a_second_ending(folder: Path) -> Path:
    return tar(folder / "a.tar", [(name.replace(".cls", ".x.cls"), data) for name, data in labelled()])
