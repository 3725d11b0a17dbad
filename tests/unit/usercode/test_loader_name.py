"""Names of a user's own loader, as ``--loader`` takes them."""

from __future__ import annotations

import json

import pytest

from pipetune.errors import UsageError
from pipetune.usercode.loader_name import pack_name, parse_name


@pytest.mark.parametrize(
    ("text", "module", "attributes", "arguments"),
    [
        ("mod:make", "mod", ("make",), None),
        ("pkg.mod:Data.loader", "pkg.mod", ("Data", "loader"), None),
        ("folder/mod.py:make", "folder.mod", ("make",), None),
        ("mod:build()", "mod", ("build",), ()),
        ("mod:build('a.yaml', 3)", "mod", ("build",), ("a.yaml", 3)),
        ("mod:build(a.yaml)", "mod", ("build",), ("a.yaml",)),
    ],
)
def test_a_name_in_its_parts(text: str, module: str, attributes: tuple[str, ...], arguments: object) -> None:
    assert parse_name(text) == (module, attributes, arguments)


@pytest.mark.parametrize("text", ["mod", ":make", "mod:", "mod:a:b", "mod:make(1", "mod:1st", "mod:a b"])
def test_what_is_no_name_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(UsageError, match="--loader"):
        parse_name(text)


def test_a_child_reads_the_name_and_the_folder() -> None:
    assert json.loads(pack_name("mod:make", "/job")) == {"import": "mod:make", "cwd": "/job"}
