"""The JSON schemas in this folder, made from the records: ``python -m pipetune.report.schemas`` writes them.

The fields, their types and which of them are required come from the records; descriptions come from the docs of their
fields. The rest is in this module: the values that a text may have, ranges, and which objects have no other fields. The
files are committed, because editors and other programs read them; a test checks that they are up to date.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import sys
import typing
from pathlib import Path
from typing import Any

from pipetune.augmentation.recipes import PLACES, RECIPES
from pipetune.candidates.settings import SETTINGS
from pipetune.diagnosis.causes import CAUSES, WATCH
from pipetune.explaining.verdict import LIMITS
from pipetune.machine.host import Host
from pipetune.predicting.model import RATE_LIMITS
from pipetune.records.batch_size import BatchSizes
from pipetune.records.evidence import Signal
from pipetune.records.explanation import STAGES, Explanation
from pipetune.records.observation import EMULATED, LOADER_WAIT, NVML
from pipetune.records.prediction import KINDS, WhatIf
from pipetune.records.scaling import Scaling
from pipetune.records.schedule import Schedule
from pipetune.records.summaries import AS_IT_IS
from pipetune.records.sweep import SCHEMA
from pipetune.records.watch import Stall, WatchResult, WatchStart, Window
from pipetune.sweeping.result_json import FailedRow, MeasuredRow, OutcomeRow, SweepJson

Schema = dict[str, Any]

#: Settings of a candidate whose value is one of a few words.
_TEXT_SETTINGS = ("transfer", "allocator", "start_method", "decode_region", "transforms_on")

SWEEP_FILE = "sweep.schema.json"
WATCH_FILE = "watch.schema.json"
EXPLAIN_FILE = "explain.schema.json"
WHATIF_FILE = "whatif.schema.json"
SCALE_FILE = "scale.schema.json"
SCHEDULE_FILE = "schedule.schema.json"
BATCH_SIZE_FILE = "batch-size.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"

_WATCH_CAUSES: Schema = {"enum": [cause.name for cause in CAUSES.values() if WATCH in cause.named_by]}
_SIGNALS: Schema = {"enum": list(Signal)}
_SHARE: Schema = {"minimum": 0, "maximum": 1}
_AT_LEAST_0: Schema = {"minimum": 0}

#: Record -> field -> limits that its type does not express.
_LIMITS: dict[str, dict[str, Schema]] = {
    "SweepJson": {
        "schema": {"const": SCHEMA},
        "status": {"enum": ["target_met", "target_missed", "interrupted", "failed"]},
        "target": {"exclusiveMinimum": 0, "maximum": 1},
        "target_metric": {"enum": ["goodput", "nvml"]},
        "reused": _AT_LEAST_0,
    },
    "AcceleratorSpec": {"kind": {"enum": ["cuda", "xpu", "cpu", "emulated"]}},
    "DatasetSummary": {"shards": _AT_LEAST_0},
    "WorkloadSummary": {"cache": {"enum": ["warm", "cold", AS_IT_IS]}, "augment": {"enum": list(RECIPES)}},
    "Question": {"transforms": {"enum": [*PLACES, None]}},
    "Candidate": {
        "num_workers": _AT_LEAST_0,
        "prefetch_depth": _AT_LEAST_0,
        **{name: {"enum": list(SETTINGS[name].values)} for name in _TEXT_SETTINGS},
        # Not a field any more, but still written for programs that do not know the field ``loader``.
        "worker_kind": {
            "enum": ["process", "thread"],
            "description": "thread with the loader threads, else process: the setting that became loader.",
        },
    },
    "OutcomeRow": {"role": {"enum": ["ceiling", "baseline", "candidate"]}},
    "Window": {"number": {"minimum": 1}, "psi_scope": {"enum": ["cgroup", "machine", None]}},
    "Stall": {"cause": _WATCH_CAUSES},
    "Verdict": {
        "source": {"enum": [NVML, EMULATED, LOADER_WAIT]},
        "cause": _WATCH_CAUSES,
        "confidence": {"enum": ["high", "medium", "low"]},
        "missing_signals": {"items": _SIGNALS},
    },
    "SignalValue": {"signal": _SIGNALS},
    "CauseShare": {"cause": _WATCH_CAUSES, "share": _SHARE},
    "Explanation": {"bound_by": {"enum": list(LIMITS)}, "bound_stage": {"enum": [*STAGES, None]}},
    "StageCost": {"stages": {"items": {"enum": list(STAGES)}}},
    "Remedy": {"how": {"enum": ["measured", "predicted"]}},
    "Prediction": {"bound_by": {"enum": list(RATE_LIMITS)}, "next_bound_by": {"enum": [*RATE_LIMITS, None]},
                   "kind": {"enum": list(KINDS)}},
    "WhatIf": {"target": {"exclusiveMinimum": 0, "maximum": 1}},
}  # fmt: skip
for _row in ("FailedRow", "MeasuredRow"):
    _LIMITS[_row] = _LIMITS["OutcomeRow"]

#: Fields that are always written although their record has a default for them.
_ALWAYS: dict[str, tuple[str, ...]] = {
    "SweepJson": ("schema",),
    "DatasetSummary": ("name", "root", "images", "found_images", "classes", "skipped", "fingerprint"),
    "SkippedFile": ("path", "reason"),
    "Candidate": ("pin_memory",),
    "Failure": ("hint",),
    "Window": ("notes",),
    "WatchResult": ("job_exit_code",),
}
#: Fields of the machine that the schema promises: those needed to compare runs. Others may change.
_HOST_REQUIRED = ("cpu_model", "cores_usable", "python")
#: Records whose objects have no other fields than these.
_CLOSED = (
    "SweepJson", "AcceleratorSpec", "DatasetSummary", "SkippedFile", "WorkloadSummary", "Candidate", "FailedRow",
    "MeasuredRow", "Deviation", "UnfitCandidate", "Failure", "LeftOut",
)  # fmt: skip


def sweep_schema() -> Schema:
    """JSON Schema of what ``pipetune sweep --json`` prints."""
    defs = _definitions(SweepJson, FailedRow, MeasuredRow, Host)
    root = defs.pop("SweepJson")
    rows = [{"$ref": _REF.format(name=row.__name__)} for row in (FailedRow, MeasuredRow)]
    defs["OutcomeRow"] = {"title": "OutcomeRow", "description": _in_words(OutcomeRow.__doc__ or ""), "oneOf": rows}
    defs["Host"]["required"] = list(_HOST_REQUIRED)
    root["properties"]["host"] = _host_of(root)
    title = "Result of pipetune sweep (--json, and result.json in the run folder)"
    return {"$schema": _DIALECT, **root, "title": title, "$defs": defs}


def watch_schema() -> Schema:
    """JSON Schema of a line of ``pipetune watch --json`` and ``--log``."""
    lines = {"start": WatchStart, "window": Window, "stall": Stall, "end": WatchResult}
    defs = _definitions(*lines.values(), Host)
    defs["Host"]["required"] = []
    defs["WatchStart"]["properties"]["host"] = _host_of(defs["WatchStart"])
    kinds = [
        {
            "properties": {"schema": {"const": SCHEMA}, "kind": {"const": kind}}, "required": ["schema", "kind"],
            "$ref": _REF.format(name=record.__name__),
        }
        for kind, record in lines.items()
    ]  # fmt: skip
    return {"$schema": _DIALECT, "title": "A line of pipetune watch --json and --log", "oneOf": kinds, "$defs": defs}


def explain_schema() -> Schema:
    """JSON Schema of what ``pipetune explain --json`` writes."""
    defs = _definitions(Explanation)
    properties = {
        "schema": {"const": SCHEMA}, "kind": {"const": "explain"},
        "status": {"enum": ["ok", "interrupted", "failed"]},
        "message": {"type": ["string", "null"], "description": "Why it was stopped."},
        "seconds": {"type": "number", "description": "All of it.", **_AT_LEAST_0},
        "explanation": {"anyOf": [{"$ref": _REF.format(name="Explanation")}, {"type": "null"}],
                        "description": "null: too little was measured."},
    }  # fmt: skip
    return {
        "$schema": _DIALECT, "title": "Result of pipetune explain (--json, and result.json in the run folder)",
        "type": "object", "required": list(properties), "properties": properties, "$defs": defs,
    }  # fmt: skip


def whatif_schema() -> Schema:
    """JSON Schema of what ``pipetune whatif --json`` writes."""
    properties = {
        "schema": {"const": SCHEMA}, "kind": {"const": "whatif"}, "status": {"enum": ["ok", "interrupted", "failed"]},
        "message": {"type": ["string", "null"], "description": "Why it was stopped."},
        "seconds": {"type": "number", "description": "All of it.", **_AT_LEAST_0},
        "whatif": {"$ref": _REF.format(name="WhatIf")},
    }  # fmt: skip
    return {
        "$schema": _DIALECT, "title": "Result of pipetune whatif (--json, and result.json in the folder of a check)",
        "type": "object", "required": list(properties), "properties": properties, "$defs": _definitions(WhatIf),
    }  # fmt: skip


def scale_schema() -> Schema:
    """JSON Schema of what ``pipetune scale --json`` writes."""
    return _of_one("scale", "scaling", Scaling)


def schedule_schema() -> Schema:
    """JSON Schema of what ``pipetune schedule --json`` writes."""
    return _of_one("schedule", "schedule", Schedule)


def batch_size_schema() -> Schema:
    """JSON Schema of what ``pipetune batch-size --json`` writes."""
    return _of_one("batch-size", "batch_sizes", BatchSizes)


def _of_one(command: str, name: str, record: type[Any]) -> Schema:
    """JSON Schema of a command that writes one record."""
    properties = {
        "schema": {"const": SCHEMA}, "kind": {"const": command}, name: {"$ref": _REF.format(name=record.__name__)},
    }  # fmt: skip
    return {
        "$schema": _DIALECT, "title": f"Result of pipetune {command} --json", "type": "object",
        "required": list(properties), "properties": properties, "$defs": _definitions(record),
    }  # fmt: skip


def as_text(schema: Schema) -> str:
    """A schema as the text of its file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _host_of(record: Schema) -> Schema:
    return {"$ref": _REF.format(name="Host"), "description": record["properties"]["host"]["description"]}


def _definitions(*records: type[Any]) -> dict[str, Schema]:
    """Name -> schema, for these records and all records inside them."""
    import msgspec

    _, schemas = msgspec.json.schema_components(records, ref_template=_REF)
    held: dict[str, type[Any]] = {}
    for record in records:
        _collect(record, held)
    return {name: _definition(held[name], schema) for name, schema in schemas.items()}


def _collect(hint: Any, held: dict[str, type[Any]]) -> None:
    """Add every record inside a type to ``held``, by name."""
    for inner in typing.get_args(hint):
        _collect(inner, held)
    if (dataclasses.is_dataclass(hint) or typing.is_typeddict(hint)) and hint.__name__ not in held:
        held[hint.__name__] = hint
        for inner in typing.get_type_hints(hint).values():
            _collect(inner, held)


def _definition(record: type[Any], schema: Schema) -> Schema:
    """A record's schema: fields in the order of the source, with descriptions and limits."""
    name, docs = record.__name__, _field_docs(record)
    limits = _LIMITS.get(name, {})
    properties = {}
    for field in [*typing.get_type_hints(record), *limits]:
        found = _simple(schema["properties"].get(field, {}))
        if limits.get(field, {}).keys() & {"enum", "const"}:
            found.pop("type", None)
        described = {"description": docs[field]} if field in docs else {}
        properties[field] = {**found, **described, **limits.get(field, {})}
    required = [field for field in properties if field in (*schema["required"], *_ALWAYS.get(name, ()))]
    closed = {"additionalProperties": False} if name in _CLOSED else {}
    description = _in_words(record.__doc__ or "")
    return {
        "title": name, "description": description, "type": "object", "required": required, "properties": properties,
        **closed,
    }  # fmt: skip


def _simple(schema: Schema) -> Schema:
    """The schema without defaults, which mean nothing in an output, and with ``["number", "null"]`` for ``anyOf``."""
    schema = {name: value for name, value in schema.items() if name != "default"}
    kinds = [kind.get("type") for kind in schema.get("anyOf", ()) if kind.keys() == {"type"}]
    return {"type": kinds} if kinds and len(kinds) == len(schema["anyOf"]) else schema


def _field_docs(record: type[Any]) -> dict[str, str]:
    """Field -> the docstring below it in the source, fields of base classes included."""
    docs: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if base.__module__.startswith("pipetune."):
            docs |= _docs_in(base)
    return docs


def _docs_in(record: type[Any]) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(sys.modules[record.__module__]))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == record.__name__)
    docs = {}
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            docs[ast.unparse(field.target)] = _in_words(str(below.value.value))
    return docs


def _in_words(doc: str) -> str:
    """A docstring as one line of plain text."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"\1", " ".join(doc.split()))
    for name, json_name in (("None", "null"), ("True", "true"), ("False", "false")):
        text = text.replace(f"``{name}``", json_name)
    return text.replace("``", "")


def main() -> None:
    """Write the files beside this module."""
    files = {
        SWEEP_FILE: sweep_schema(), WATCH_FILE: watch_schema(), EXPLAIN_FILE: explain_schema(),
        WHATIF_FILE: whatif_schema(), SCALE_FILE: scale_schema(), SCHEDULE_FILE: schedule_schema(),
        BATCH_SIZE_FILE: batch_size_schema(),
    }  # fmt: skip
    for name, schema in files.items():
        Path(__file__).with_name(name).write_text(as_text(schema), encoding="utf-8")


if __name__ == "__main__":
    main()
