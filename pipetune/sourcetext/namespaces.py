"""Whether a script's settings come from its options, or from a file that it reads beside them or in their place."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pipetune.sourcetext.config_lines import CONFIG_ENDINGS
from pipetune.sourcetext.declarations import called_name, list_file_calls
from pipetune.sourcetext.expressions import list_names
from pipetune.sourcetext.scope import list_assigned, parse_file
from pipetune.sourcetext.written import Written

#: Functions that read a configuration file.
_READERS = frozenset({"load", "loads", "safe_load", "full_load", "unsafe_load", "load_file", "fromfile", "read_json"})
#: Names in a text that gives options other defaults than their declarations do.
_DEFAULT_SETTERS = frozenset({
    "set_defaults", "default_config_files", "default_map", "ActionConfigFile", "fromfile_prefix_chars",
})  # fmt: skip
#: Methods of HfArgumentParser that read a file in place of the command line.
_HAND_READERS = frozenset({"parse_json_file", "parse_yaml_file", "parse_dict"})


def changes_namespace(files: Sequence[str]) -> bool:
    """Whether a script sets attributes by names that the text does not write, as ``vars(args).update(config)`` does, or
    puts its options and another dictionary together."""
    return any(
        _changes_by_name(node) or _merges_options(node)
        for file in files
        for node in ast.walk(parse_file(file) or ast.Module([], []))
    )


def _changes_by_name(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Subscript) and _is_all_options(target.value) for target in node.targets)
    if not isinstance(node, ast.Call):
        return False
    name = called_name(node)
    if name == "setattr":
        return len(node.args) == 3 and not isinstance(node.args[1], ast.Constant)
    if name in ("Namespace", "SimpleNamespace"):
        return any(word.arg is None for word in node.keywords)
    if name == "update":
        return isinstance(node.func, ast.Attribute) and _is_all_options(node.func.value)
    return name in ("parse_args", "parse_known_args") and any(word.arg == "namespace" for word in node.keywords)


def _merges_options(node: ast.AST) -> bool:
    parts: list[ast.expr] = []
    if isinstance(node, ast.Dict):
        parts = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call) and called_name(node) in ("merge", "update"):
        parts = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
    return len(parts) > 1 and any(_is_all_options(part) for part in parts)


def _is_all_options(value: ast.expr) -> bool:
    """Whether an expression is ``vars(args)`` or ``args.__dict__``."""
    is_dictionary = isinstance(value, ast.Attribute) and value.attr == "__dict__"
    return is_dictionary or (isinstance(value, ast.Call) and called_name(value) == "vars")


def sets_defaults(files: Sequence[str]) -> bool:
    """Whether a script gives its options other defaults, by itself or from files that its parser reads."""
    names = {
        getattr(node, "id", getattr(node, "attr", getattr(node, "arg", None)))
        for file in files
        for node in ast.walk(parse_file(file) or ast.Module([], []))
    }
    return bool(names & _DEFAULT_SETTERS)


def is_read_by_hand(files: Sequence[str], words: Sequence[str]) -> bool:
    """Whether a command names a file that a script reads in place of options, which would be refused beside it."""
    reads = any(called_name(call) in _HAND_READERS for file in files for call in list_file_calls(file))
    return reads and any(word.endswith(CONFIG_ENDINGS) and not word.startswith("-") for word in words)


def is_read_from_file(written: Written, wanted: str, files: Sequence[str]) -> bool:
    """Whether a value is part of a configuration that is read from a file, into which no option of its name is put."""
    names = list_names(written.value)
    variable = names[0] if names else ""
    bodies = [written.scope.tree, *([] if written.scope.function is None else [written.scope.function])]
    assigned = [value for body in bodies if not isinstance(body, ast.Lambda)
                for _, value in list_assigned(body, variable)]  # fmt: skip
    is_read = bool(assigned) and all(
        isinstance(value, ast.Call) and called_name(value) in _READERS for value in assigned
    )
    return is_read and not any(_puts_option(file, wanted) for file in files)


def _puts_option(file: str, wanted: str) -> bool:
    """Whether statements copy a value to another place of its name, or all options at once."""
    tree = parse_file(file)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Call) and called_name(node) == "vars":
            return True
        places = [node.value, *node.targets] if isinstance(node, ast.Assign) else []
        if sum(list_names(place)[-1:] == [wanted] for place in places) > 1:
            return True
    return False
