"""The script's own option for a setting: ``--workers`` sets ``num_workers=args.workers``. Reads source text only."""

from __future__ import annotations

import ast
from pathlib import Path


def flag_of(expression: str, file: str) -> str | None:
    """The option by which the script sets an expression; ``None``: there is none that can be told from its text.

    Args:
        expression: as the call writes it, such as ``args.workers``.
        file: that has the call; options are looked for there, because a parser elsewhere may be another program's.
    """
    try:
        value = ast.parse(expression, mode="eval").body
        tree = ast.parse(Path(file).read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError, OSError):
        return None
    wanted = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else None
    if wanted is None or any(_is_assigned(node, wanted) for node in ast.walk(tree)):
        return None  # what the call gets need not be what the option says
    found = {flag for node in ast.walk(tree) if isinstance(node, ast.Call) and (flag := _flag(node, wanted))}
    return found.pop() if len(found) == 1 else None


def _is_assigned(node: ast.AST, wanted: str) -> bool:
    """Whether a statement gives an attribute or variable of this name a value, other than an attribute of that name."""
    targets: list[ast.expr]
    value: ast.expr | None
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets, value = [node.target], node.value
    else:
        return False
    if isinstance(value, ast.Attribute) and value.attr == wanted and not isinstance(node, ast.AugAssign):
        return False
    names = [part for target in targets for part in ast.walk(target)]
    return value is not None and any(
        getattr(part, "attr", getattr(part, "id", None)) == wanted and isinstance(getattr(part, "ctx", None), ast.Store)
        for part in names
    )


def _flag(call: ast.Call, wanted: str) -> str | None:
    """The long option that ``add_argument`` or click's ``option`` names, where its value is called as wanted."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in ("add_argument", "option"):
        return None
    words = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    flags = [word for word in words if word.startswith("-")]
    long = next((word for word in flags if word.startswith("--")), flags[0] if flags else None)
    if long is None:
        return None
    named = [word.value.value for word in call.keywords if word.arg == "dest" and isinstance(word.value, ast.Constant)]
    dest = str(named[0]) if named else long.lstrip("-").replace("-", "_")
    return long if dest == wanted else None
