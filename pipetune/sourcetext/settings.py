"""Where a loader's settings are written, and the option that sets one, for a loader that a sweep has found."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.records.script import ScriptLoader, ScriptOption, SettingOrigin
from pipetune.sourcetext.config_lines import CONFIG_ENDINGS
from pipetune.sourcetext.options import find_option, is_set_by_option
from pipetune.sourcetext.origins import find_origin

#: Settings that are looked for, under torch's names.
_SETTINGS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size")


def origins_for(loader: ScriptLoader, command: Sequence[str]) -> dict[str, SettingOrigin]:
    """Setting -> the place where its value is written, of those that the constructor's call does not write itself."""
    origins = {}
    for name in _SETTINGS:
        argument, value = loader.names.get(name, name), _value(loader, name)
        origin = find_origin(argument, loader.calls, value, command)
        if origin is None:
            continue
        if origin.file.endswith(CONFIG_ENDINGS) and is_set_by_option(argument, loader.calls, value, command):
            continue  # the option may count, and not the file
        origins[name] = origin
    return origins


def option_for(loader: ScriptLoader, setting: str, command: Sequence[str]) -> ScriptOption | None:
    """The script's own option for a setting; ``None``: none can be told from its text."""
    return find_option(loader.names.get(setting, setting), loader.calls, _value(loader, setting), command)


def _value(loader: ScriptLoader, setting: str) -> object:
    return loader.settings.get(setting, getattr(loader, setting, None))
