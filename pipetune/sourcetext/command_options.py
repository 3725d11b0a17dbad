"""A command with another value for one of the script's options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from pipetune.records.script import ScriptOption


def find_value(option: ScriptOption, words: Sequence[str]) -> str | None:
    """What a command says for an option; ``None``: nothing, so that its default holds."""
    place = _find(option, words)
    return None if place is None else place[2]


def set_option(option: ScriptOption, words: Sequence[str], value: object) -> tuple[str, ...] | None:
    """The command with another value for an option, put where the command has one, else added.

    Returns:
        ``None``: the command does not name the program, so that an option at its end would be another program's.
    """
    place = _find(option, words)
    changed = list(words)
    if place is not None:
        number, form, _ = place
        changed[number] = form.format(value)
        return tuple(changed)
    program = find_program(words, option.program)
    if program is None:
        return None
    added = [f"{option.words[0]}={value}"] if option.override else [option.words[0], str(value)]
    end = program + 1 if option.comes_first else len(changed)
    return (*changed[:end], *added, *changed[end:])


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


def find_program(words: Sequence[str], program: str) -> int | None:
    """The number of the word with which a command starts a file, itself or as a module; ``None``: none does, as behind
    a shell's text."""
    file = PurePath(program)
    for number, word in enumerate(words):
        if PurePath(word).name == file.name and " " not in word:
            return number
        is_module = number > 0 and words[number - 1] == "-m"
        if is_module and word.rpartition(".")[2] in (file.stem, file.parent.name):
            return number
    return None
