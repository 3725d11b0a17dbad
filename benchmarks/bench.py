"""What the benchmarks share: the two options, the machine they ran on, and the file they write."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pipetune.host import describe_host
from pipetune.version import __version__


def arguments(promise: str | None, **options: str) -> argparse.Namespace:
    """``--quick``, ``--json FILE`` and further options (name -> help) that take a value."""
    parser = argparse.ArgumentParser(description=promise, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions; ends within 10 minutes on 2 cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers here")
    for name, text in options.items():
        parser.add_argument(f"--{name}", help=text)
    return parser.parse_args()


def machine() -> dict[str, Any]:
    """Enough to know what a result may be compared with; no names of hosts or people."""
    host = describe_host()
    return {
        "cpu_model": host.cpu_model,
        "cores_usable": host.cores_usable,
        "memory_total_bytes": host.memory_total_bytes,
        "kernel": host.kernel,
        "python": host.python,
        "versions": {**host.versions, "pipetune": __version__},
    }


def write(file: Path | None, name: str, promise_holds: bool, numbers: Mapping[str, Any]) -> None:
    """The result with machine and date; nothing where no file was asked for."""
    if file is None:
        return
    content = {
        "benchmark": name,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine(),
        "promise_holds": promise_holds,
        **numbers,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Plain columns, the first to the left and the others to the right."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = []
    for row in [headings, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells))
    return "\n".join(lines)
