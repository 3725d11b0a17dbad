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
    assert parse_name(text) == (module, attributes, arguments, {})


@pytest.mark.parametrize(
    ("inside", "arguments", "by_name"),
    [
        ("'cfg.yaml', batch_size=64", ("cfg.yaml",), {"batch_size": 64}),
        ("'a,b'", ("a,b",), {}),
        ("[224, 256], (1, 2)", ([224, 256], (1, 2)), {}),
        ("{'size': 224}, None, -1.5", ({"size": 224}, None, -1.5), {}),
        ("a.yaml, 3", ("a.yaml", 3), {}),
        ("s3://bucket/train,", ("s3://bucket/train",), {}),
        ("path='/data/a b'", (), {"path": "/data/a b"}),
    ],
)
def test_arguments_are_read_as_python_reads_them(
    inside: str, arguments: tuple[object, ...], by_name: dict[str, object]
) -> None:
    found = parse_name(f"mod:build({inside})")
    assert (found.arguments, dict(found.by_name)) == (arguments, by_name)


@pytest.mark.parametrize("inside", ["size=a.yaml", "**options", "open('x')", "1)(2", "'a", "a b", "[1, x]", ","])
def test_arguments_that_are_no_plain_values_are_refused_and_not_guessed(inside: str) -> None:
    with pytest.raises(UsageError, match="no plain values"):
        parse_name(f"mod:build({inside})")


@pytest.mark.parametrize("text", ["mod", ":make", "mod:", "mod:a:b", "mod:make(1", "mod:1st", "mod:a b"])
def test_what_is_no_name_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(UsageError, match="--loader"):
        parse_name(text)


def test_a_child_reads_the_name_and_the_folder() -> None:
    assert json.loads(pack_name("mod:make", "/job")) == {"import": "mod:make", "cwd": "/job"}
