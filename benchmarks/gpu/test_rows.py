"""A plugin of pytest: writes what comes of each test as soon as it is known, for a run that may be ended at any moment.

Each line of the file that ``PIPETUNE_TEST_ROWS`` names is JSON: ``{"name": …, "status": "started"}`` when a test
begins, then ``passed``, ``failed`` or ``skipped`` with seconds and the end of the message.
"""

from __future__ import annotations

import json
import os
from typing import Any

VARIABLE = "PIPETUNE_TEST_ROWS"
_MESSAGE_LINES = 12


def pytest_runtest_logstart(nodeid: str, location: tuple[str, int | None, str]) -> None:
    """A test begins."""
    _write(name=nodeid.rpartition("::")[2], status="started")


def pytest_runtest_logreport(report: Any) -> None:
    """A phase of a test has ended: its call, or one before or after it that was not passed."""
    if report.when != "call" and report.passed:
        return
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
    message = [line for line in text.splitlines() if line.strip()][-_MESSAGE_LINES:]
    _write(name=report.nodeid.rpartition("::")[2], status=report.outcome, seconds=report.duration, message=message)


def _write(**row: Any) -> None:
    with open(os.environ[VARIABLE], "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
