"""The name of a loader of the user's, ``pkg.mod:make_loader``, taken apart. Imports nothing of the user's."""

from __future__ import annotations

import ast
import json
from typing import Any, NamedTuple

from pipetune.errors import UsageError

EXAMPLE = "write --loader pkg.mod:make_loader"


class Named(NamedTuple):
    """A name, taken apart."""

    module: str
    attributes: tuple[str, ...]
    arguments: tuple[Any, ...] | None
    """``None``: it is no call."""


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
    return Named(module, tuple(name.split(".")), tuple(map(_value, _split(inside[:-1]))))


def _split(inside: str) -> list[str]:
    return [part.strip() for part in inside.split(",")] if inside.strip() else []


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text  # a bare word, as a shell leaves of a quoted one


def pack_name(text: str, cwd: str) -> bytes:
    """The file that each child reads."""
    return json.dumps({"import": text, "cwd": cwd}).encode()
