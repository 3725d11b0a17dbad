"""Reads a fake GPU in a process of its own: the request is JSON in the first argument, the answer JSON on stdout."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

from pipetune.errors import PipetuneError
from pipetune.sampler import nvml


def main(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request.get("list"):
            return {"gpus": [dataclasses.asdict(gpu) for gpu in nvml.list_gpus()]}
        return _read(request)
    except PipetuneError as error:
        reason = error.reason if isinstance(error, nvml.NvmlUnavailable) else None
        return {"message": error.message, "reason": reason, "hint": error.hint, "exit_code": error.exit_code}


def _read(request: dict[str, Any]) -> dict[str, Any]:
    now_ns = 10**12
    gpu = nvml.open_gpu(**request["open"], clock=lambda: now_ns)
    readings = []
    for _ in range(request["looks"]):
        readings.append(dataclasses.asdict(gpu.read()))
        now_ns += round(request["every_s"] * 1e9)
    seen = {
        "readings": readings,
        "lost": gpu.lost,
        "unsupported": sorted(gpu.unsupported),
        "name": gpu.name,
        "uuid": gpu.uuid,
        "driver_version": gpu.driver_version,
        "cost_s": gpu.call_cost_s(),
    }
    gpu.close()
    gpu.close()
    return {**seen, "after_close": dataclasses.asdict(gpu.read())}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
