from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pipetune.report import schemas
from pipetune.report.schemas import (
    EXPLAIN_FILE,
    SWEEP_FILE,
    WATCH_FILE,
    as_text,
    explain_schema,
    sweep_schema,
    watch_schema,
)
from tests import ROOT

RUNS = ROOT / "tests" / "runs_before_the_move"
EACH = pytest.mark.parametrize(
    ("name", "schema"),
    [(SWEEP_FILE, sweep_schema()), (WATCH_FILE, watch_schema()), (EXPLAIN_FILE, explain_schema())],
    ids=["sweep", "watch", "explain"],
)


def committed(name: str) -> str:
    return Path(schemas.__file__).with_name(name).read_text(encoding="utf-8")


@EACH
def test_the_committed_file_is_up_to_date(name: str, schema: dict[str, Any]) -> None:
    assert committed(name) == as_text(schema), "run: python -m pipetune.report.schemas"


@EACH
def test_it_is_a_schema(name: str, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    names = {ref.rpartition("/")[2] for ref in references(schema)}
    assert names
    assert names <= set(schema["$defs"])


def references(schema: Any) -> list[str]:
    inside = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    own = [schema["$ref"]] if isinstance(schema, dict) and "$ref" in schema else []
    return own + [ref for part in inside for ref in references(part)]


def test_descriptions_come_from_the_fields_and_are_plain_text() -> None:
    defs = sweep_schema()["$defs"]
    assert defs["MeasuredRow"]["properties"]["goodput"]["description"].startswith("samples_per_s / the accelerator's")
    assert (
        defs["MeasuredRow"]["properties"]["key"]["description"] == defs["FailedRow"]["properties"]["key"]["description"]
    )
    for text in (as_text(sweep_schema()), as_text(watch_schema())):
        assert "``" not in text
        assert ":mod:" not in text


SWEEP = json.loads((RUNS / "sweep" / "result.json").read_text())
LINES = {line["kind"]: line for line in map(json.loads, (RUNS / "watch.jsonl").read_text().splitlines())}


def changed(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """A copy with another value at ``path``; ``...``: without it."""
    data = copy.deepcopy(data)
    part = data
    for step in path[:-1]:
        part = part[step]
    if value is ...:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("surprise",), 1), (("schema",), 2), (("schema",), ...), (("status",), "won"), (("target",), 0),
        (("target",), 1.5), (("seconds",), "long"), (("ceiling_ci95",), [1]), (("recommended",), ...),
        (("accelerator", "kind"), "tpu"), (("accelerator", "surprise"), 1), (("dataset", "fingerprint"), ...),
        (("dataset", "surprise"), 1), (("dataset", "shards"), -1), (("workload", "cache"), "hot"),
        (("host", "python"), ...), (("outcomes", 0, "surprise"), 1), (("outcomes", 0, "samples_per_s"), ...),
        (("outcomes", 0, "role"), "star"), (("outcomes", 0, "candidate", "num_workers"), -1),
        (("outcomes", 0, "candidate", "surprise"), 1), (("outcomes", 0, "candidate", "worker_kind"), "fibre"),
        (("outcomes", 0, "candidate", "pin_memory"), ...), (("outcomes", 0, "failure"), {}),
        (("outcomes", 0, "steady"), None), (("reused",), -1), (("left_out", 0, "reason"), ...),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_result_must_not_be(path: tuple[str | int, ...], value: Any) -> None:
    validator = jsonschema.Draft202012Validator(sweep_schema())
    assert validator.is_valid(SWEEP)
    assert not validator.is_valid(changed(SWEEP, path, value))


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("start", ("schema",), 2), ("start", ("kind",), "begin"), ("start", ("monotonic_ns",), ...),
        ("start", ("pipetune",), ...), ("window", ("number",), 0), ("window", ("notes",), ...),
        ("window", ("psi_scope",), "world"), ("window", ("verdicts", 0, "cause"), "cpu_bound"),
        ("window", ("verdicts", 0, "confidence"), "total"), ("window", ("verdicts", 0, "source"), "guess"),
        ("window", ("verdicts", 0, "shares", 0, "share"), 1.5), ("window", ("verdicts", 0, "workers", 0, "state"), 1),
        ("stall", ("cause",), "bad luck"), ("stall", ("lost_s",), None), ("end", ("job_exit_code",), ...),
        ("end", ("reason",), ...),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_line_must_not_be(kind: str, path: tuple[str | int, ...], value: Any) -> None:
    validator = jsonschema.Draft202012Validator(watch_schema())
    assert validator.is_valid(LINES[kind])
    assert not validator.is_valid(changed(LINES[kind], path, value))


def test_a_line_may_have_fields_of_a_newer_version() -> None:
    validator = jsonschema.Draft202012Validator(watch_schema())
    assert validator.is_valid(changed(LINES["window"], ("verdicts", 0, "surprise"), 1))
