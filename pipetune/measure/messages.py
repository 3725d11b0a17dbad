"""What a child's messages hold, checked where they arrive. The parent's side only.

A candidate runs other people's code: a loader's own workers inherit the pipe, and may write to it, or close half a line
in it. What comes of that is this candidate's failure, and no error of the sweep's.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple, NotRequired, TypedDict

from pipetune.records.set_up import SetUp
from pipetune.records.sweep import Failure

#: Longest message: positions and reasons of some 60,000 images that do not decode.
MOST_BYTES = 16 << 20


class GarbledError(ValueError):
    """A line is no message."""


class StepRow(NamedTuple):
    """A step, in the order of :data:`pipetune.measure.wire.steps_to_rows`."""

    t_start_ns: int
    data_wait_s: float
    h2d_s: float | None
    compute_s: float
    idle_s: float
    t_end_ns: int
    samples: int
    others_s: float = 0.0


class Hello(TypedDict):
    """What the child is."""

    versions: dict[str, str]
    gpu_uuid: str | None
    set_up: NotRequired[SetUp]


class Phase(TypedDict):
    """The phase that it has entered."""

    phase: str


class Steps(TypedDict):
    """Steps of one phase."""

    phase: str
    rows: list[StepRow]


class FirstBatch(TypedDict):
    """The first batch is there."""

    open_s: float
    time_to_first_batch_s: float


class Checked(TypedDict):
    """Images that do not decode."""

    done: int
    bad: list[tuple[int, str]]


class Result(TypedDict):
    """The phases have ended."""

    warmup_batches: int
    steady: bool
    window_batches: float
    epoch_windows: NotRequired[int]


class Epoch(TypedDict):
    """An epoch of the script's loop ends, or begins."""

    within: bool
    epoch_samples: NotRequired[int | None]
    epoch_starts: NotRequired[list[tuple[float, float]]]
    apart: NotRequired[list[tuple[int, int]]]


class ResultOfChild(Result):
    """The same of a child of pipetune's own; a script's result lacks what its process does not know."""

    speed_before: tuple[float, float]
    pss_bytes: int | None
    gpu_mem_bytes: int | None
    gpu_allocated_bytes: NotRequired[int | None]
    batch_shape: list[int]
    copy_bytes_per_s: float | None


class ResultOfScript(Result):
    """The same of a script's process."""

    stop_at: int
    epoch_batches: NotRequired[int | None]
    epoch_samples: NotRequired[int | None]
    whole_epochs: NotRequired[bool]
    epoch_starts: NotRequired[list[tuple[float, float]]]
    apart: NotRequired[list[tuple[int, int]]]
    gpu_mem_bytes: NotRequired[int | None]
    gpu_allocated_bytes: NotRequired[int]
    gpu_free_bytes: NotRequired[int]
    gpu_total_bytes: NotRequired[int]


class FailedScript(TypedDict):
    """What a script's process raised."""

    phase: str
    error: str
    message: str
    traceback: NotRequired[str]
    worker_signal: NotRequired[int | None]


class Closed(TypedDict):
    """The loader has ended."""

    speed_after: tuple[float, float] | None


class Failed(TypedDict):
    """Why it was not measured."""

    failure: Failure


class WaitsFor(TypedDict):
    """Ranks that the others have waited for, for some time now."""

    ranks: list[int]


class RankEnded(TypedDict):
    """A rank has ended before it was measured, and has not said why."""

    ended_rank: int
    returncode: int
    phase: str


#: Kind of message -> what it has at least. A child that tries images sends a result without anything.
FROM_CHILD: dict[str, Any] = {
    "hello": Hello, "phase": Phase, "steps": Steps, "first_batch": FirstBatch, "checked": Checked,
    "result": ResultOfChild, "closed": Closed, "failure": Failed, "waits_for": WaitsFor, "rank_ended": RankEnded,
}  # fmt: skip
#: The same of a script's process, as far as they are about a measurement.
FROM_SCRIPT: dict[str, Any] = {
    "phase": Phase, "steps": Steps, "first_batch": FirstBatch, "result": ResultOfScript, "failure": FailedScript,
    "epoch": Epoch,
}  # fmt: skip
#: Kind of what stands in place of a line that is no message.
GARBLED = "garbled"


def decode_line(line: bytes) -> dict[str, Any]:
    """A message from a line, whatever kind it is.

    Raises:
        GarbledError: it is no JSON object with a ``type``.
    """
    try:
        message = json.loads(line, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise GarbledError(f"{line[:40]!r} is no message: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise GarbledError(f"{line[:40]!r} is no message: it has no type")
    return message


def _no_number(text: str) -> float:
    raise ValueError(f"{text} was not measured")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def check(message: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    """The message itself.

    Args:
        message: from :func:`decode_line`.
        shapes: :data:`FROM_CHILD` or :data:`FROM_SCRIPT`; other kinds are passed as they are.

    Raises:
        GarbledError: it lacks something, or has something of another type.
    """
    import msgspec

    if not isinstance(message.get("rank", 0), int):
        raise GarbledError(f"a message {message['type']!r}: rank {message['rank']!r} is no number")
    shape = shapes.get(message["type"])
    if shape is None or (message["type"] == "result" and set(message) <= {"v", "type"}):
        return message
    try:
        msgspec.convert(message, shape)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise GarbledError(f"a message {message['type']!r}: {str(error).replace('`', '')}") from None
    return message
