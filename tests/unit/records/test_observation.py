from __future__ import annotations

import dataclasses

from pipetune.records.observation import (
    GpuReading,
    MachineLoad,
    MachineReading,
    Reading,
    TreeReading,
    timeline_reading,
)
from pipetune.records.sweep import to_dict
from tests.unit.samples import sample

#: Fields of a stored reading, in the order in which stored runs have them.
STORED = [
    "t_ns", "interval_s", "cpu_busy_pct", "cpu_idle_pct", "cpu_iowait_pct", "psi_cpu_some_pct", "psi_io_some_pct",
    "psi_memory_some_pct", "tree", "gpu", "tick_cost_s",
]  # fmt: skip


def test_a_stored_reading_keeps_its_fields() -> None:
    assert list(to_dict(sample(Reading))) == STORED


def test_a_stored_reading_has_the_load_of_the_machine_and_its_own_time() -> None:
    load, tree, gpu = sample(MachineReading, t_ns=1, interval_s=9.0), sample(TreeReading), sample(GpuReading)

    reading = timeline_reading(load, t_ns=5, interval_s=0.5, tree=tree, gpu=gpu, tick_cost_s=0.25)

    assert (reading.t_ns, reading.interval_s, reading.tick_cost_s) == (5, 0.5, 0.25)
    assert (reading.tree, reading.gpu) == (tree, gpu)
    for field in dataclasses.fields(MachineLoad):
        if field.name not in ("t_ns", "interval_s"):
            assert getattr(reading, field.name) == getattr(load, field.name)
