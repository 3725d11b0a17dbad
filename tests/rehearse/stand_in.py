"""The stand-in CUDA runtime and NVML on a rented machine: run there, prints the variables that a call needs as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests import fake_cuda, fake_nvml


def main(folder: Path) -> None:
    """Build both into a new folder."""
    reason = fake_cuda.why_not()
    if reason:
        print(json.dumps({"reason": reason}))
        return
    libraries = [folder / name for name in ("cuda", "nvml", "place")]
    for library in libraries:
        library.mkdir(parents=True)
    cuda, nvml, place = libraries
    environment = fake_cuda.environment(
        fake_cuda.build(cuda), place, nvml=fake_nvml.HEALTHY, nvml_dir=fake_nvml.build(nvml)
    )
    print(json.dumps({name: value for name, value in environment.items() if os.environ.get(name) != value}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
