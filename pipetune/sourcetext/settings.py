"""Where a loader's settings are written, and the option that sets one, for a loader that a sweep has found."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pipetune.records.script import ScriptLoader, ScriptOption, SettingOrigin
from pipetune.sourcetext.config_lines import CONFIG_ENDINGS
from pipetune.sourcetext.options import find_option, is_made_by_trainer, is_set_by_option
from pipetune.sourcetext.origins import TRAINER_NAMES, find_origin
from pipetune.sourcetext.scope import find_call

#: Settings that are looked for, under torch's names -> what they are where nothing is written.
_DEFAULTS = {
    "num_workers": 0, "prefetch_factor": None, "pin_memory": False, "persistent_workers": False, "batch_size": 1,
}  # fmt: skip


def origins_for(loader: ScriptLoader, command: Sequence[str]) -> dict[str, SettingOrigin]:
    """Setting -> the place where its value is written, of those that the constructor's call does not write itself."""
    origins = {}
    for name in _DEFAULTS:
        argument, value = loader.names.get(name, name), _value(loader, name)
        origin = find_origin(argument, loader.calls, value, command)
        in_file = origin is not None and origin.file.endswith(CONFIG_ENDINGS)
        if origin is None or (in_file and is_set_by_option(argument, loader.calls, value, command)):
            origin = _find_unwritten(loader, name)  # the option may count, and not the file
        if origin is not None:
            origins[name] = origin
    return origins


def _find_unwritten(loader: ScriptLoader, setting: str) -> SettingOrigin | None:
    """The call that led to a loader, for an argument that comes in a dictionary, or to a trainer that makes it."""
    argument = loader.names.get(setting, setting)
    place = find_call(loader.calls[0], 0) if loader.calls else None
    if place is None or any(word.arg == argument for word in place[0].keywords):
        return None
    call, scope = place
    unpacked = [f"**{ast.unparse(word.value)}" for word in call.keywords if word.arg is None]
    if unpacked and _value(loader, setting) != _DEFAULTS[setting]:
        return SettingOrigin(file=scope.file, line=call.lineno, name=argument, text=", ".join(unpacked))
    if is_made_by_trainer(loader.calls) and setting in TRAINER_NAMES:
        name = TRAINER_NAMES[setting]
        return SettingOrigin(file=scope.file, line=call.lineno, name=name, text="a field of TrainingArguments")
    return None


def option_for(loader: ScriptLoader, setting: str, command: Sequence[str]) -> ScriptOption | None:
    """The script's own option for a setting; ``None``: none can be told from its text."""
    return find_option(loader.names.get(setting, setting), loader.calls, _value(loader, setting), command)


def _value(loader: ScriptLoader, setting: str) -> object:
    return loader.settings.get(setting, getattr(loader, setting, None))
