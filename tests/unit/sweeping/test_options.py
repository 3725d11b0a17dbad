from __future__ import annotations

import dataclasses
import inspect
import typing

import pytest
import typer

import pipetune
from pipetune.cli.app import app
from pipetune.cli.sweep_batch import parse_batch_size
from pipetune.records.sweep import Candidate
from pipetune.sweeping.options import FREE_OPTIONS, SweepOptions
from pipetune.sweeping.ranks import parse_ranks
from pipetune.units import parse_bytes, parse_duration, parse_names, parse_numbers

FIELDS = {field.name: field for field in dataclasses.fields(SweepOptions)}
#: How the command line's text of a default becomes the field's value.
READ = {
    "prefetch": parse_numbers, "cheapest": parse_names, "budget_s": parse_duration, "max_ram_bytes": parse_bytes,
    "ranks": parse_ranks, "batch_size": parse_batch_size,
}  # fmt: skip


def option_of(field: str) -> str:
    return field.removesuffix("_s").removesuffix("_bytes")


#: Those that are given otherwise; a notebook is on one host.
OTHERS = ("dataset", "fix", "untuned", "remarks", "command", "hosts")


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in OTHERS])
def test_command_notebook_and_record_have_the_same_defaults(name: str) -> None:
    default = FIELDS[name].default
    command = typer.main.get_command(app).commands["sweep"]  # type: ignore[attr-defined]
    written = next(option for option in command.params if option.name == option_of(name)).default
    assert (READ[name](written) if isinstance(written, str) and name in READ else written) == default
    assert inspect.signature(pipetune.sweep).parameters[option_of(name)].default == default


def test_what_may_be_given_anew_is_an_option() -> None:
    assert set(FIELDS) > FREE_OPTIONS
    assert not FREE_OPTIONS & {"dataset", "model", "batch_size", "image_size", "precision", "device", "cache", "seed"}


def test_every_option_has_a_type_that_json_keeps() -> None:
    plain = {str, int, float, bool, type(None), Candidate}
    for kind in typing.get_type_hints(SweepOptions).values():
        parts = {part for part in typing.get_args(kind) if part is not ...} or {kind}
        assert all(part in plain or typing.get_origin(part) is tuple or part is typing.Any for part in parts), kind
