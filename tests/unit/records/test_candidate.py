from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from pipetune.records.candidate import Candidate
from pipetune.records.sweep import from_dict, to_dict

PLAIN = Candidate(backend="opencv", num_workers=2, prefetch_depth=4, batch_size=64)
CHANGES: tuple[dict[str, Any], ...] = (
    {"backend": "dali"}, {"num_workers": 3}, {"prefetch_depth": 5}, {"batch_size": 65}, {"pin_memory": True},
    {"loader": "threads"}, {"transfer": "uint8"}, {"reuse_buffers": True}, {"channels_last": True},
    {"allocator": "glibc"}, {"in_order": False}, {"start_method": "spawn"}, {"persistent_workers": False},
    {"hw_decoder_load": 0.0}, {"worker_cores": "all"}, {"opencv_threads": 0}, {"decoder": "crop"},
    {"keep_workers": True},
    {"transforms_on": "device"},
    {"decode_region": "whole"},
)  # fmt: skip


def test_a_key_differs_for_every_field() -> None:
    assert {name for change in CHANGES for name in change} == {field.name for field in fields(Candidate)}
    keys = {PLAIN.key, *(replace(PLAIN, **change).key for change in CHANGES)}
    assert len(keys) == 1 + len(CHANGES)


#: As they stand in runs that were stored by earlier versions.
STORED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"backend": "pillow", "num_workers": 0, "prefetch_depth": 0}, "pillow-w0-p0-b64"),
    ({}, "opencv-w2-p4-b64"),
    ({"pin_memory": True}, "opencv-w2-p4-b64-pin"),
    ({"backend": "dali", "num_workers": 1, "prefetch_depth": 2}, "dali-w1-p2-b64"),
    ({"backend": "own", "batch_size": 8, "allocator": "glibc"}, "own-w2-p4-b8-glibc"),
    ({"backend": "jpeg-roi", "loader": "threads"}, "jpeg-roi-w2-p4-b64-thread"),
    ({"loader": "threads", "transfer": "uint8", "allocator": "tcmalloc"}, "opencv-w2-p4-b64-thread-u8-tcmalloc"),
    ({"reuse_buffers": True, "transfer": "uint8", "channels_last": True}, "opencv-w2-p4-b64-reuse-u8-nhwc"),
    ({"in_order": False, "start_method": "forkserver"}, "opencv-w2-p4-b64-any-forkserver"),
    ({"persistent_workers": False, "pin_memory": True}, "opencv-w2-p4-b64-pin-restart"),
    ({"backend": "dali", "hw_decoder_load": 0.8, "pin_memory": True}, "dali-w2-p4-b64-pin-hw0.8"),
    ({"backend": "script", "worker_cores": "all", "opencv_threads": 0}, "script-w2-p4-b64-allcores-cv0"),
    ({"backend": "script", "decoder": "crop"}, "script-w2-p4-b64-crop"),
    ({"backend": "script", "decoder": "simd"}, "script-w2-p4-b64-simd"),
    ({"backend": "dali", "hw_decoder_load": 1.0, "transfer": "uint8"}, "dali-w2-p4-b64-u8-hw1"),
    ({"backend": "dali", "hw_decoder_load": 0.5, "decode_region": "whole"}, "dali-w2-p4-b64-hw0.5-whole"),
    ({"backend": "nvjpeg", "pin_memory": True, "loader": "device"}, "nvjpeg-w2-p4-b64-pin"),
    ({"backend": "dali-cpu", "loader": "dali"}, "dali-cpu-w2-p4-b64"),
    ({"transfer": "uint8", "transforms_on": "device"}, "opencv-w2-p4-b64-u8-augdevice"),
)


@pytest.mark.parametrize(("changes", "key"), STORED, ids=[key for _, key in STORED])
def test_keys_of_stored_runs_stay(changes: dict[str, Any], key: str) -> None:
    assert replace(PLAIN, **changes).key == key


def test_a_key_says_the_value_and_not_whether_it_is_the_default() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Later(Candidate):
        transfer: str = "uint8"
        persistent_workers: bool = False

    later = Later(backend="opencv", num_workers=2, prefetch_depth=4, batch_size=64)
    assert later.key == "opencv-w2-p4-b64-u8-restart"
    assert replace(later, transfer="float32", persistent_workers=True).key == PLAIN.key


@pytest.mark.parametrize(
    ("stored", "loader"),
    [
        ({"backend": "opencv"}, "torch"),
        ({"backend": "opencv", "worker_kind": "process"}, "torch"),
        ({"backend": "opencv", "worker_kind": "thread"}, "threads"),
        ({"backend": "dali", "worker_kind": "process"}, "dali"),
        ({"backend": "own", "worker_kind": "process"}, "user"),
        ({"backend": "opencv", "worker_kind": "process", "loader": "threads"}, "threads"),
    ],
)
def test_a_stored_candidate_has_its_loader(stored: dict[str, str], loader: str) -> None:
    found = from_dict(Candidate, {"num_workers": 2, "prefetch_depth": 2, "batch_size": 64, **stored})
    assert found.loader == loader


def test_worker_kind_is_still_written_and_taken() -> None:
    threads = replace(PLAIN, loader="threads")
    assert (to_dict(threads)["loader"], to_dict(threads)["worker_kind"]) == ("threads", "thread")
    assert to_dict(replace(PLAIN, backend="dali", loader="dali"))["worker_kind"] == "process"
    values = {"num_workers": 2, "prefetch_depth": 4, "batch_size": 64}
    assert Candidate(backend="opencv", worker_kind="thread", **values) == threads  # type: ignore[call-arg,arg-type]
    assert replace(threads, worker_kind="process") == PLAIN  # type: ignore[call-arg]
