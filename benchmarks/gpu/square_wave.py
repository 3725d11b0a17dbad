"""Work that comes and goes: the device multiplies matrices for half a period, and rests for the other half.

Some periods are longer, with other halves: in a wave that repeats itself at once, a value that is a whole period late
would look as if it were not late at all, and one that is averaged over a period would never change.

What NVML says beside it shows how late and how often its utilisation is new. Prints a JSON object at each edge, with
the host's clock, and one about the drift of the device's clock. An emulated device is played by one core.
"""

from __future__ import annotations

import itertools
import sys
import time

import torch

from benchmarks.gpu.commands import print_json

_EDGE = 4096
#: Products between two looks at the clock: about 1 ms on an H100, so edges are placed within that.
_PRODUCTS = 4
#: Busy and idle parts of the wave's periods, in periods.
PARTS = ((0.5, 0.5), (0.5, 0.5), (1.5, 1.0))


def main(device: str, seconds: float, period_s: float) -> None:
    """Run the wave for that long; ends at a falling edge."""
    is_cuda = device.startswith("cuda")
    torch.set_num_threads(1)
    kind = {"device": device, "dtype": torch.bfloat16} if is_cuda else {"device": "cpu"}
    a = torch.randn([_EDGE if is_cuda else 128] * 2, **kind)
    b = torch.empty_like(a)

    def multiply() -> None:
        for _ in range(_PRODUCTS):
            torch.matmul(a, a, out=b)
        if is_cuda:
            torch.cuda.synchronize(device)

    multiply()
    first = DeviceClock(device) if is_cuda else None
    ends = time.monotonic() + seconds
    for busy, idle in itertools.cycle(PARTS):
        if time.monotonic() >= ends:
            break
        print_edge(busy=True)
        rests = time.monotonic() + busy * period_s
        while time.monotonic() < rests:
            multiply()
        print_edge(busy=False)
        time.sleep(max(0.0, rests + idle * period_s - time.monotonic()))
    if first is not None:
        print_json(kind="drift", **first.drift())


def print_edge(*, busy: bool) -> None:
    """An edge on the host's clock."""
    print_json(kind="edge", busy=busy, monotonic_ns=time.monotonic_ns())


class DeviceClock:
    """The device's clock against ``time.monotonic``, from events that are waited for."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._event, self._began_s = self._mark()

    def _mark(self) -> tuple[torch.cuda.Event, float]:
        torch.cuda.synchronize(self._device)
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        event.synchronize()
        return event, time.monotonic()

    def drift(self) -> dict[str, float]:
        """Seconds on both clocks since it was made, and by how many millionths they differ."""
        event, now_s = self._mark()
        host_s, device_s = now_s - self._began_s, 1e-3 * float(self._event.elapsed_time(event))
        return {"host_s": host_s, "device_s": device_s, "ppm": 1e6 * (device_s / host_s - 1)}


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
