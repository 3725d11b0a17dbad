"""The name of a loader of the user's, ``pkg.mod:make_loader``, taken apart. Imports nothing of the user's."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pipetune.errors import UsageError

EXAMPLE = "write --loader pkg.mod:make_loader"
#: A number, or a text that has lost its quotation marks to the shell.
_BARE = re.compile(r"[\w./~:@%+-]+")


class Named(NamedTuple):
    """A name, taken apart."""

    module: str
    attributes: tuple[str, ...]
    arguments: tuple[Any, ...] | None
    """``None``: it is no call."""
    by_name: Mapping[str, Any] = MappingProxyType({})
    """Arguments that are given by their names."""


def parse_name(text: str) -> Named:
    """``"pkg.mod:build('cfg.yaml')"`` in its parts.

    Raises:
        UsageError: it is no such name.
    """
    module, colon, rest = text.partition(":")
    name, bracket, inside = rest.partition("(")
    if not colon or not module or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"--loader {text!r} is no name of a loader", hint=EXAMPLE)
    module = module.removesuffix(".py").replace("/", ".").lstrip(".") if module.endswith(".py") else module
    if not bracket:
        return Named(module, tuple(name.split(".")), None)
    if not inside.endswith(")"):
        raise UsageError(f"--loader {text!r}: a bracket is missing at its end", hint=EXAMPLE)
    arguments, by_name = _arguments(text, inside[:-1])
    return Named(module, tuple(name.split(".")), arguments, by_name)


def _arguments(text: str, inside: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, as Python reads them.

    Raises:
        UsageError: they are no plain values.
    """
    try:
        call = ast.parse(f"f({inside}\n)", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):  # "1)(2"
            raise ValueError
        by_name = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg is not None}
        if len(by_name) != len(call.keywords):  # **options
            raise ValueError
        return tuple(map(ast.literal_eval, call.args)), by_name
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        words = [word.strip() for word in inside.strip().removesuffix(",").split(",")]
        if not all(map(_BARE.fullmatch, words)):
            raise UsageError(
                f"--loader {text!r}: its arguments are no plain values",
                hint="write texts in quotation marks: --loader 'pkg.mod:build(\"a.yaml\", size=224)'",
            ) from None
    return tuple(map(_value, words)), {}


def _value(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except (SyntaxError, ValueError):
        return word  # as a shell leaves of a quoted one


def pack_name(text: str, cwd: str) -> bytes:
    """The file that each child reads."""
    return json.dumps({"import": text, "cwd": cwd}).encode()
