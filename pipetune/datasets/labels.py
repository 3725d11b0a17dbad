"""What the text of a label file means: the number of a class, the name of one, or neither.

WebDataset reads ``KEY.cls`` with Python's ``int``. pipetune also takes names of classes, where all labels of a data set
are names. What looks like a number and is none, JSON, lists and binary data are told, because their order as text
would give every class another number.
"""

from __future__ import annotations

import re
import string

#: Class numbers are below it: index and loss have room for each class up to the largest.
MAX_CLASSES = 1_000_000
_BYTE_ORDER_MARK = "\ufeff"
#: What numbers, lists of numbers and dates are made of.
_NUMERIC = frozenset(string.digits + " \t,;:.+-_eE")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_JSON_BEGINNINGS = ("{", "[", '"')
_SHOWN_CHARACTERS = 24


class LabelError(ValueError):
    """A label that is no class. The text says why, as ``a label of '2.0', which is no whole number``."""


def parse_label(data: bytes) -> int | str:
    """The class number, or the class name, in a label file.

    Surrounding white space and a byte-order mark are no part of it.

    Raises:
        LabelError: neither; or a number that is negative or :data:`MAX_CLASSES` and more.
    """
    try:
        text = data.decode("utf-8").removeprefix(_BYTE_ORDER_MARK).strip()
    except UnicodeDecodeError:
        raise LabelError("a label that is no text") from None
    if not text:
        raise LabelError("an empty label")
    if _WHOLE_NUMBER.fullmatch(text):
        return check_class_number(int(text))
    if not text.isprintable():
        reason = "has several lines" if not set(text) - set(string.printable) else "is no text"
        raise LabelError(f"a label that {reason}")
    if text.startswith(_JSON_BEGINNINGS):
        raise LabelError(f"a label of {_shorten(text)}, which is JSON and no class")
    if text[0] in "0123456789+-." and set(text) <= _NUMERIC:
        raise LabelError(f"a label of {_shorten(text)}, which is no whole number")
    return text


def check_class_number(number: int) -> int:
    """The number, where it can be a class.

    Raises:
        LabelError: it cannot.
    """
    if number < 0:
        raise LabelError(f"a label of {number}, which is no class")
    if number >= MAX_CLASSES:
        raise LabelError(f"a label of {number}, and class numbers are below {MAX_CLASSES:,}")
    return number


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")
