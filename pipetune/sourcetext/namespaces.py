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
    """Whether a script sets attributes by names that the text does not write: ``vars(args).update(config)``."""
    for file in files:
        for call in list_file_calls(file):
            name = called_name(call)
            if name == "setattr" and len(call.args) == 3 and not isinstance(call.args[1], ast.Constant):
                return True
            if name in ("Namespace", "SimpleNamespace") and any(word.arg is None for word in call.keywords):
                return True
            owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            if name == "update" and (owner.startswith("vars(") or owner.endswith(".__dict__")):
                return True
            if name in ("parse_args", "parse_known_args") and any(word.arg == "namespace" for word in call.keywords):
                return True
    return False


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
