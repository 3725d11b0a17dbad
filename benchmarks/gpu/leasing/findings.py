"""What a stage has found so far. Every change is on the disk at once, so a stage that is cut keeps what it has."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.leasing.clean import clean_json

#: A stage is asked to end so much before its cap (s), and never later than this share of the cap.
_END_S, _END_FRAC = 4.0, 0.9


class Findings:
    """The result of a stage while it grows.

    Args:
        file: the stage's JSON file, in which the lease has written what it knows already.
        device: ``cuda:N`` or ``emulated``.
        folder: what is put there comes back packed, e.g. run folders; exists.
        cap_s: the stage is ended after this.
        uuid: of the CUDA device; ``None``: there is none.
    """

    def __init__(self, file: Path, device: str, folder: Path, cap_s: float, uuid: str | None = None) -> None:
        self.device = device
        self.uuid = uuid
        self.folder = folder
        self.cap_s = cap_s
        self._file = file
        self._deadline = time.monotonic() + max(_END_FRAC * cap_s, cap_s - _END_S)
        self._content: dict[str, Any] = json.loads(file.read_text())
        self.numbers: dict[str, Any] = self._content.setdefault("numbers", {})

    @property
    def stage(self) -> str:
        """The stage's name."""
        return str(self._content["stage"])

    @property
    def is_cuda(self) -> bool:
        """Whether a CUDA device is measured."""
        return self.device.startswith("cuda")

    @property
    def index(self) -> int:
        """The CUDA device's number, as torch counts."""
        return int(self.device.partition(":")[2] or 0) if self.is_cuda else 0

    @property
    def remaining_s(self) -> float:
        """Time until the stage should have ended (s); 0 afterwards."""
        return max(0.0, self._deadline - time.monotonic())

    def keep(self, name: str, value: Any) -> None:
        """Keep a number, or any JSON value."""
        self.numbers[name] = value
        self._write()

    def append(self, name: str, value: Any) -> None:
        """Keep one more value of a list."""
        self.numbers.setdefault(name, []).append(value)
        self._write()

    def say(self, *lines: str) -> None:
        """Print lines, and keep them beside the numbers."""
        for line in lines:
            print(line, flush=True)
        self._append("lines", *lines)

    def report_problem(self, *texts: str) -> None:
        """Keep what is wrong with pipetune, or with this stage."""
        for text in texts:
            print(f"PROBLEM: {text}", flush=True)
        self._append("problems", *texts)

    def report_unproven(self, what: str, reason: str, command: str | None = None, need: str | None = None) -> None:
        """Keep what could not be tried.

        Args:
            what: the claim that stays open.
            reason: why it could not be tried.
            command: makes it provable; ``None``: this stage alone, once more.
            need: the name of the package that is missing (:mod:`benchmarks.gpu.leasing.needs`).
        """
        again = f"bash benchmarks/gpu/lease.sh --only {self.stage}"
        print(f"not proven: {what}: {reason}", flush=True)
        self._append("not_proven", {"what": what, "reason": reason, "command": command or again, "need": need})

    def _append(self, name: str, *values: Any) -> None:
        self._content.setdefault(name, []).extend(values)
        self._write()

    def _write(self) -> None:
        write_json(self._file, self._content)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a result without hosts and folders; a reader, and a kill at any moment, finds the old or the new one."""
    partial = file.with_name(f".{file.name}.new")
    partial.write_text(json.dumps(clean_json(_finite(content)), indent=1, allow_nan=False) + "\n")
    os.replace(partial, file)


def _finite(value: Any) -> Any:
    """JSON has no infinity, and nothing that is no number may hide a result."""
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
