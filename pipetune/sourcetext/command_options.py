"""A command with another value for one of the script's options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

from pipetune.records.script import ScriptOption


def find_value(option: ScriptOption, words: Sequence[str]) -> str | None:
    """What a command says for an option; ``None``: nothing, so that its default holds."""
    place = _find(option, words)
    return None if place is None else place[2]


def set_option(option: ScriptOption, words: Sequence[str], value: object) -> tuple[str, ...] | None:
    """The command with another value for an option, put where the command has one, else added at its end.

    Returns:
        ``None``: the command does not name the program, so that an option at its end would be another program's.
    """
    place = _find(option, words)
    changed = list(words)
    if place is not None:
        number, form, _ = place
        changed[number] = form.format(value)
        return tuple(changed)
    if not names_program(words, option.program):
        return None
    return (*changed, f"{option.words[0]}={value}") if option.override else (*changed, option.words[0], str(value))


def find_word(name: str, words: Sequence[str]) -> str | None:
    """The part of a command's word that names a setting, with what stands above its name: ``--num_workers``,
    ``DATALOADER.NUM_WORKERS``, ``data.num_workers`` of ``data.num_workers=4``; ``None``: the command does not name it.
    """
    for word in words:
        key = word.partition("=")[0]
        if re.split(r"[.]", key.lstrip("-+").replace("-", "_"))[-1].lower() == name.lower():
            return key
    return None


def _find(option: ScriptOption, words: Sequence[str]) -> tuple[int, str, str] | None:
    """Number of the word that has the value, the word with ``{}`` in its place, and the value; of the last one."""
    for number in reversed(range(len(words))):
        word = words[number]
        for name in option.words:
            name_there = re.escape(name)
            if option.override:
                match = re.fullmatch(rf"(\+{{0,2}}{name_there}=)(.*)", word)
            elif name.startswith("--"):
                match = re.fullmatch(rf"({name_there}=)(.*)", word)
            else:
                match = re.fullmatch(rf"({name_there}=?)(\d+)", word)
            if match is not None:
                return number, f"{match[1]}{{}}", match[2]
            if number and not option.override and words[number - 1] == name:
                return number, "{}", word
    return None


def names_program(words: Sequence[str], program: str) -> bool:
    """Whether a command starts a file of this name itself, or as a module; behind a shell's text it does not."""
    file = PurePath(program)
    modules = [after for word, after in pairwise(words) if word == "-m"]
    return any(PurePath(word).name == file.name and " " not in word for word in words) or any(
        module.rpartition(".")[2] in (file.stem, file.parent.name) for module in modules
    )
