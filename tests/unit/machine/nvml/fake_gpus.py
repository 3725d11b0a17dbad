"""Reads a fake NVIDIA driver through the real binding and our sampler, in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import ROOT, fake_nvml

FIELDS = (
    "util_pct", "mem_used_bytes", "sm_active_pct", "jpeg_util_pct", "pcie_rx_bytes", "pcie_tx_bytes", "power_w",
    "energy_j", "throttled_pct", "slowed_pct", "power_capped_pct", "sm_clock_mhz", "max_sm_clock_mhz", "power_limit_w",
)  # fmt: skip
#: What a healthy GPU says of its clocks from the second reading on.
AT_FULL_CLOCK = {
    "throttled_pct": 0.0, "slowed_pct": 0.0, "power_capped_pct": 0.0,
    "sm_clock_mhz": 1980, "max_sm_clock_mhz": 1980, "power_limit_w": 300.0,
}  # fmt: skip
NOTHING = dict.fromkeys(FIELDS)


def _child(library: Path, folder: Path, scenario: str, request: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.machine.nvml.nvml_child", json.dumps(request)],
        env=fake_nvml.environment(library, scenario, folder=folder),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


class Gpus:
    """The sampler's readings of a scenario."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._library, self.folder = library, folder

    def read(
        self,
        scenario: str,
        *,
        count: int = 1,
        every_s: float = 0.5,
        processes: bool = False,
        record: Path | None = None,
        replay_now: Path | None = None,
        **which: Any,
    ) -> dict[str, Any]:
        """What was read ``count`` times; ``record`` and ``replay_now`` are those of the child."""
        request = {"open": which, "count": count, "every_s": every_s, "processes": processes}
        request |= {name: str(path) for name, path in (("record", record), ("replay_now", replay_now)) if path}
        return _child(self._library, self.folder, scenario, request)

    def column(self, name: str, scenario: str, **options: Any) -> list[Any]:
        return [reading[name] for reading in self.read(scenario, **options)["readings"]]

    def list(self, scenario: str) -> dict[str, Any]:
        return _child(self._library, self.folder, scenario, {"list": True})

    def calls(self) -> list[str]:
        return fake_nvml.calls(self.folder)
