from __future__ import annotations

import os

import pytest

from pipetune.measure import wire
from pipetune.measure.messages import GarbledError
from pipetune.measure.phases import Question
from pipetune.records.sweep import StepTime
from tests.photo_set import candidate, workload


def test_a_request_comes_back_whole() -> None:
    setting = workload(dataset="caf\udce9 \n <b>", seed=5)
    request = wire.Request(
        candidate=candidate("opencv", 2), workload=setting, role="baseline",
        question=Question(levels=(900.0,), run_noise=0.03), shape=(8, 3, 64, 64),
    )  # fmt: skip
    line = wire.encode_request(request)
    assert line.count(b"\n") == 1
    assert wire.decode_request(line) == request


def test_steps_come_back_whole() -> None:
    steps = [
        StepTime(t_start_ns=1, data_wait_s=0.5, h2d_s=None, compute_s=0.1, idle_s=0.0, t_end_ns=7, samples=4),
        StepTime(t_start_ns=2**62, data_wait_s=0.0, h2d_s=0.25, compute_s=0.1, idle_s=0.3, t_end_ns=2**62, samples=1),
    ]
    message = wire.decode_message(wire.encode_message("steps", phase="timed", rows=wire.steps_to_rows(steps)))
    assert wire.rows_to_steps(message["rows"]) == steps


@pytest.mark.parametrize("line", [b'{"v": 99, "type": "hello"}', b'{"type": "phase", "phase": "open"}'])
def test_another_version_is_refused(line: bytes) -> None:
    with pytest.raises(GarbledError, match="wire version"):
        wire.decode_message(line)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b'"text"', b"\xff", b'{"v": 1, "ty', b"[" * 100_000, b'{"v": 1}', b'{"v": 1, "type": 3}',
        b'{"v": 1, "type": "steps", "phase": "timed", "rows": [[1, 2]]}', b'{"v": 1, "type": "hello"}',
        b'{"v": 1, "type": "steps", "phase": "timed", "rows": [[1, "x", null, 0, 0, 1, 1]]}',
        b'{"v": 1, "type": "closed", "speed_after": [1]}', b'{"v": 1, "type": "failure", "failure": {"kind": "x"}}',
        b'{"v": 1, "type": "result", "steady": true}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(GarbledError):
        wire.decode_message(line)


@pytest.mark.parametrize("line", [b"", b"{}", b'{"v": 1}', b'{"v": 1, "candidate": 3}', b"[" * 100_000, b"\xff"])
def test_what_is_no_request_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whichever
        wire.decode_request(line)


def test_a_parent_that_left_is_no_error() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    try:
        wire.Sender(write_fd).send("phase", phase="open", t_ns=1)
    finally:
        os.close(write_fd)
