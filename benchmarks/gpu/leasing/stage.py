"""The process of one stage; :mod:`benchmarks.gpu.leasing.run_stage` starts it."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from benchmarks import bench
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.leasing.stages import find_stages


def main(arguments: list[str]) -> int:
    """Run the stage ``NAME DEVICE FILE FOLDER SECONDS UUID``; 0 where it came to its end, whatever it found."""
    name, device, file, folder, cap_s, uuid = arguments
    findings = Findings(Path(file), device, Path(folder), float(cap_s), uuid or None)
    (stage,) = find_stages(name)
    try:
        stage.load()(findings)
    except bench.Skipped as reason:
        findings.report_unproven(stage.proves, str(reason))
    except Exception as error:  # whatever a library raises: what was measured until then is kept
        traceback.print_exc()
        findings.report_problem(f"{type(error).__name__}: {str(error)[:300]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
