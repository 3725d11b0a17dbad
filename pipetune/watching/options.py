"""The options of a watch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What the user asked for, checked."""

    command: tuple[str, ...]
    pid: int | None
    gpu: int | None
    interval_s: float
    window_s: float
    for_s: float | None
    once: bool
    json_lines: bool
    log: Path | None
    out: Path | None
    save: bool
    prometheus: str | None
    fail_under: float | None
    stacks: bool
