"""The JSON lines between parent and child. Standard library only; both sides check the version.

Parent to child, on standard input: one request. Child to parent, on a pipe of its own (libraries print to stdout):
``hello``, ``phase``, ``steps``, ``first_batch``, ``result``, ``closed``; or ``failure`` instead of the rest.
A child with the role :data:`CHECK` measures nothing and sends ``checked`` instead.

Why not ``multiprocessing``: its children run the caller's main script again (see ``datasets/photo_makers``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipetune.measure import messages
from pipetune.measure.phases import Question
from pipetune.records.sweep import Candidate, StepTime, Workload, from_dict, to_dict

VERSION = 1

#: Role of a child that tries to decode every image.
CHECK = "check"

#: Environment variable of the child: the file descriptor of its end of the pipe.
FD_VARIABLE = "PIPETUNE_WIRE_FD"

_STEP_FIELDS = ("t_start_ns", "data_wait_s", "h2d_s", "compute_s", "idle_s", "t_end_ns", "samples", "others_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the child has to measure."""

    candidate: Candidate
    workload: Workload
    role: str
    """See :class:`pipetune.records.sweep.Outcome`; or :data:`CHECK`."""
    question: Question | None = None
    shape: tuple[int, ...] | None = None
    """Shape of the images of a batch, where it is known; ``None``: batch size and image size say it."""
    speed_before: tuple[float, float] | None = None
    """The machine's speed as the child before has just read it (:class:`pipetune.measure.machine_speed.Speed`);
    ``None``: the child reads it."""
    stages: tuple[str, ...] = ()
    """What the loader does of :data:`pipetune.records.explanation.STAGES`; ``()``: all."""
    asked_ns: int | None = None
    """When the parent asked for the child's process (``time.monotonic_ns``); ``None``: not known."""
    servers: tuple[int, ...] = ()
    """PIDs of the fork servers, see :func:`pipetune.child.memory.tree_bytes`."""


def encode_request(request: Request) -> bytes:
    """The line that says what the child has to measure."""
    return json.dumps({"v": VERSION, **to_dict(request)}).encode() + b"\n"


def decode_request(line: bytes) -> Request:
    """The reverse of :func:`encode_request`.

    Raises:
        ValueError: it is no request, or the parent has another version.
    """
    try:
        request = _checked(json.loads(line))
        request.pop("v")
        return from_dict(Request, request)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"no request: {error}") from None


def encode_message(kind: str, **fields: Any) -> bytes:
    """A line from the child."""
    return json.dumps({"v": VERSION, "type": kind, **fields}).encode() + b"\n"


def decode_message(line: bytes) -> dict[str, Any]:
    """A line from the child.

    Raises:
        GarbledError: it is no message of this version, or does not hold what its kind has.
    """
    return messages.check(_checked(messages.decode_line(line)), messages.FROM_CHILD)


def steps_to_rows(steps: Iterable[StepTime]) -> list[list[Any]]:
    """Steps as lists, in the order of their fields: a tenth of the size of objects."""
    return [[getattr(step, name) for name in _STEP_FIELDS] for step in steps]


def rows_to_steps(rows: Iterable[list[Any]]) -> list[StepTime]:
    """The reverse of :func:`steps_to_rows`."""
    return [StepTime(**dict(zip(_STEP_FIELDS, row, strict=False))) for row in rows]  # a script's have one rank


class Sender:
    """The child's end of the pipe. Where the parent has ended, writes are dropped without an error."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, kind: str, **fields: Any) -> None:
        """Write one line completely."""
        self.write(encode_message(kind, **fields))

    def write(self, line: bytes) -> None:
        """Write a line that is encoded already."""
        data = memoryview(line)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BrokenPipeError:
            pass


def _checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("v") != VERSION:
        raise messages.GarbledError(f"expected a message of wire version {VERSION}, got {str(message)[:80]!r}")
    return message
