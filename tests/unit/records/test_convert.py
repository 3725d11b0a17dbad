from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from pipetune.machine.host import Host
from pipetune.measure.phases import Question
from pipetune.records import observation, sweep, watch
from pipetune.records.sweep import Candidate, Measurement, Outcome, from_dict, to_dict
from tests.unit.samples import failed, outcome, sample

IN_MODULES = [
    kind for module in (observation, sweep, watch) for kind in vars(module).values() if dataclasses.is_dataclass(kind)
]
RECORDS: list[Any] = sorted({*IN_MODULES, Host, Question}, key=lambda kind: kind.__name__)
by_record = pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)


def through_json(data: object) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(data, allow_nan=False))
    return read


def test_the_table_of_records_is_not_empty() -> None:
    assert {"Candidate", "Outcome", "Reading", "Workload", "Diagnosis"} <= {kind.__name__ for kind in RECORDS}


@by_record
def test_every_record_survives_json(kind: type[Any]) -> None:
    record = sample(kind)
    assert from_dict(kind, through_json(to_dict(record))) == record


@by_record
def test_every_record_without_its_optional_values_survives_json(kind: type[Any]) -> None:
    full = sample(kind)
    nothing = {f.name: None for f in dataclasses.fields(kind) if "None" in str(f.type)}
    record = dataclasses.replace(full, **nothing)
    assert from_dict(kind, through_json(to_dict(record))) == record


@by_record
def test_unknown_fields_are_ignored_at_every_depth(kind: type[Any]) -> None:
    record = sample(kind)
    data = through_json(to_dict(record))
    nested = [f.name for f in dataclasses.fields(kind) if dataclasses.is_dataclass(getattr(record, f.name))]
    for part in [data, *(data[name] for name in nested)]:
        part["tokens_per_s"] = [1, {"of": "a newer version"}]
    assert from_dict(kind, data) == record


@by_record
def test_every_record_is_frozen_without_a_dict_and_keyword_only(kind: type[Any]) -> None:
    record = sample(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(kind)[0].name, None)
    assert not hasattr(record, "__dict__")
    with pytest.raises(TypeError):
        kind(1)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(TypeError, match="batch_size"):
        from_dict(Candidate, {"backend": "pillow", "num_workers": 0, "prefetch_depth": 0})


def test_a_missing_field_of_a_nested_record_is_named() -> None:
    data = to_dict(outcome())
    del data["measurement"]["samples_per_s"]
    with pytest.raises(TypeError, match="samples_per_s"):
        from_dict(Outcome, data)


def test_nested_records_come_back_as_records() -> None:
    measured = from_dict(Outcome, through_json(to_dict(outcome())))
    assert isinstance(measured.candidate, Candidate)
    assert isinstance(measured.measurement, Measurement)
    assert isinstance(measured.measurement.ci95, tuple)
    assert measured.failure is None
    assert from_dict(Outcome, through_json(to_dict(failed()))).measurement is None


def test_defaults_fill_what_an_older_file_lacks() -> None:
    data = {"backend": "pillow", "num_workers": 2, "prefetch_depth": 4, "batch_size": 64}
    assert from_dict(Candidate, data).pin_memory is False


def test_what_is_nested_too_deeply_is_no_record() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(TypeError, match="nested too deeply"):
        from_dict(Outcome, {"candidate": deep})
