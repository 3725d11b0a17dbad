"""What the benchmarks share: the two options, the machine they ran on, and the file they write."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pipetune.accelerator.named import emulated_spec
from pipetune.datasets.index import write_index
from pipetune.datasets.open_dataset import open_dataset
from pipetune.machine.host import describe_host
from pipetune.measure.harness import Setting
from pipetune.records.sweep import Workload
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


def loader_setting(folder: Path, photos: str | None, images: int, seconds: float) -> Setting:
    """A setting in which the loader is always the limit: the emulated accelerator takes a million samples/s.

    Args:
        folder: for the index.
        photos: a folder of photographs; ``None``: so many synthetic ``images``.
    """
    source = photos or f"synthetic:caltech256?n={images}"
    found = open_dataset(source, seed=0, limit_images=10**6, limit_bytes=2**40, workers=2, progress=None)
    index = folder / "index.json"
    write_index(str(index), found)
    workload = Workload(
        dataset=found.name, index_path=str(index), accelerator=emulated_spec("1e6"), model="resnet50", image_size=224,
        precision="emulated", seconds=seconds, warmup_limit_s=2 * seconds, cache="warm", seed=0,
    )  # fmt: skip
    cores = frozenset(os.sched_getaffinity(0))
    return Setting(workload=workload, paths=found.files, cores=cores)


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
