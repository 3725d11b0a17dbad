"""Lines between a sweep and its children, and the timeline that an emulated accelerator publishes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipetune.accelerator.timeline import TimelineReader, TimelineWriter, busy_between, idle_at
from pipetune.measure import messages, wire
from pipetune.measure.phases import Question
from pipetune.records.sweep import Failure, to_dict
from tests.fuzz.mutations import changed, damaged, dumped, examples
from tests.photo_set import candidate, workload
from tests.run_folders import steps

REQUEST = wire.encode_request(
    wire.Request(
        candidate=candidate("opencv", 2), workload=workload(), role="baseline", shape=(8, 3, 64, 64),
        question=Question(levels=(900.0,), run_noise=0.03), speed_before=(80.0, 90.0), servers=(17,),
    )
)  # fmt: skip
FAILURE = Failure(kind="error", phase="open", message="no", hint="look")
MESSAGES = [
    wire.encode_message("hello", pid=7, versions={"torch": "2"}, gpu_uuid=None, gpu_name=None),
    wire.encode_message("phase", phase="timed", t_ns=5),
    wire.encode_message("steps", phase="timed", rows=wire.steps_to_rows(steps(3))),
    wire.encode_message("first_batch", open_s=0.5, time_to_first_batch_s=1.5),
    wire.encode_message("checked", done=9, bad=[[3, "cut off"]]),
    wire.encode_message(
        "result", warmup_batches=2, steady=True, window_batches=2, speed_before=[80.0, 90.0], pss_bytes=None,
        gpu_mem_bytes=None, batch_shape=[4, 3, 8, 8], copy_bytes_per_s=None, ended_early=False,
    ),
    wire.encode_message("closed", speed_after=[80.0, 90.0]),
    wire.encode_message("failure", failure=to_dict(FAILURE)),
]  # fmt: skip


def _check_message(line: bytes) -> None:
    try:
        message = wire.decode_message(line)
    except messages.GarbledError:
        return
    if message["type"] == "steps":
        assert all(isinstance(step.t_end_ns, int) for step in wire.rows_to_steps(message["rows"]))
    elif message["type"] == "failure":
        assert isinstance(message["failure"]["message"], str)
    elif message["type"] == "checked":
        assert all(isinstance(position, int) for position, _ in message["bad"])


@given(damaged(MESSAGES))
@examples(300)
def test_a_torn_message_is_garbled_or_sound(line: bytes) -> None:
    _check_message(line)


@given(st.sampled_from(MESSAGES).flatmap(lambda line: changed(json.loads(line))))
@examples(300)
def test_a_message_with_other_values_is_garbled_or_sound(message: object) -> None:
    _check_message(dumped(message))


@given(st.one_of(damaged([REQUEST]), changed(json.loads(REQUEST)).map(dumped)))
@examples(300)
def test_a_request_with_other_values_is_refused_or_sound(line: bytes) -> None:
    try:
        request = wire.decode_request(line)
    except ValueError:
        return
    assert wire.decode_request(wire.encode_request(request)) == request


def _timeline() -> bytes:
    writer = TimelineWriter(capacity=16)
    for number in range(20):
        writer.add(10 * number, 10 * number + 8, 6)
    size = os.fstat(writer._fd).st_size
    content = os.pread(writer._fd, size, 0)
    writer.close()
    return content


@given(damaged([_timeline()]))
@examples(300)
def test_a_timeline_that_another_process_publishes_is_refused_or_sound(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "timeline"
    path.write_bytes(content)
    try:
        reader = TimelineReader(str(path))
    except (ValueError, OSError):
        return
    try:
        for since_ns in (-(2**63), 0, 150):
            entries = reader.entries(since_ns)
            assert len(entries) <= len(content) // 24
            busy, full = busy_between(entries, 0, 200)
            assert busy <= 1
            assert full <= 1
            assert idle_at(entries, 105) in (True, False)
    finally:
        reader.close()
