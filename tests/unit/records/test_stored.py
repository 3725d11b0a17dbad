"""What is read again has the names under which it is written."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pipetune.candidates.space import Space
from pipetune.machine.host import Host
from pipetune.records.stored import StoredHost, StoredSpace, StoredWorkload
from pipetune.records.sweep import Workload


@pytest.mark.parametrize(
    ("stored", "record", "not_read"),
    [(StoredWorkload, Workload, set()), (StoredSpace, Space, {"excluded"}), (StoredHost, Host, set())],
    ids=["workload", "space", "host"],
)
def test_every_field_is_checked_where_it_is_read(stored: type, record: type, not_read: set[str]) -> None:
    assert set(stored.__annotations__) == {field.name for field in fields(record)} - not_read
