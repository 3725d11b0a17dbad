from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from pipetune.records.script import LoaderIdentity, ScriptLoader, ScriptSummary
from pipetune.records.sweep import from_dict, to_dict
from tests.unit.samples import sample

IDENTITY = LoaderIdentity(
    file="/job/train.py", function="main", dataset="Images", sampler="RandomSampler", ordinal=1, position=(7, 4)
)


@pytest.mark.parametrize("kind", [LoaderIdentity, ScriptLoader, ScriptSummary], ids=lambda kind: kind.__name__)
def test_every_record_survives_json(kind: type[Any]) -> None:
    settings = {"settings": {"num_workers": 4, "prefetch_factor": None}} if kind is ScriptLoader else {}
    record = dataclasses.replace(sample(kind), **settings)
    assert from_dict(kind, json.loads(json.dumps(to_dict(record), allow_nan=False))) == record


def test_a_summary_of_a_script_whose_loader_was_not_found_out_survives_too() -> None:
    summary = ScriptSummary(command=("python", "train.py"), cwd="/job", loader=None)
    assert from_dict(ScriptSummary, json.loads(json.dumps(to_dict(summary)))) == summary


def test_a_loader_that_cannot_be_recognised_survives_too() -> None:
    loader = ScriptLoader(identity=None, where=None)
    assert from_dict(ScriptLoader, json.loads(json.dumps(to_dict(loader)))) == loader


@pytest.mark.parametrize(("name", "value"), [("position", (9, 9)), ("ordinal", 0)])
def test_where_it_is_in_the_file_is_no_part_of_its_key(name: str, value: Any) -> None:
    assert dataclasses.replace(IDENTITY, **{name: value}).key == IDENTITY.key


@pytest.mark.parametrize("name", ["file", "function", "dataset", "sampler"])
def test_everything_else_is(name: str) -> None:
    assert dataclasses.replace(IDENTITY, **{name: "other"}).key != IDENTITY.key
