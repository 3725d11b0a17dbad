"""The JSON of ``pipetune scale``, ``pipetune schedule`` and ``pipetune batch-size``."""

from __future__ import annotations

from typing import Any

from pipetune.records.batch_size import BatchSizes
from pipetune.records.scaling import Scaling
from pipetune.records.schedule import Schedule
from pipetune.records.sweep import SCHEMA, to_dict


def scale_json(found: Scaling) -> dict[str, Any]:
    """What ``--json`` writes."""
    return {"schema": SCHEMA, "kind": "scale", "scaling": to_dict(found)}


def schedule_json(found: Schedule) -> dict[str, Any]:
    """What ``--json`` of a schedule writes."""
    return {"schema": SCHEMA, "kind": "schedule", "schedule": to_dict(found)}


def batch_size_json(found: BatchSizes) -> dict[str, Any]:
    """What ``--json`` of batch sizes writes."""
    return {"schema": SCHEMA, "kind": "batch-size", "batch_sizes": to_dict(found)}
