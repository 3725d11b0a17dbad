"""Packs read by those who know the formats best, each in an environment of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from pipetune.packing.manifest import read_manifest
from tests.reader_environments import python_with
from tests.unit.packing.packs import options, pack, photographs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: Prints [label, hash of the bytes] of each image, in any order.
_MXNET = """
import glob, hashlib, json, sys
import mxnet as mx
found = []
for path in sorted(glob.glob(sys.argv[1] + "/*.rec")):
    index = path[:-4] + ".idx"
    records = mx.recordio.MXIndexedRecordIO(index, path, "r")
    for key in records.keys:
        header, data = mx.recordio.unpack(records.read_idx(key))
        assert header.id == key
        found.append([int(header.label), hashlib.sha256(data).hexdigest()])
    count = len(records.keys)
    images = mx.io.ImageRecordIter(path_imgrec=path, path_imgidx=index, data_shape=(3, 32, 32), batch_size=1)
    assert sum(1 for _ in images) == count
print(json.dumps(found))
"""
_STREAMING = """
import hashlib, json, sys
from streaming.base.format import reader_from_json
found = []
for shard in json.load(open(sys.argv[1] + "/index.json"))["shards"]:
    reader = reader_from_json(sys.argv[1], None, shard)
    for number in range(reader.size):
        raw = reader.get_sample_data(number)
        sample = reader.decode_sample(raw)
        size = int.from_bytes(raw[:4], "little")
        assert sample["image"].size[0] > 0
        found.append([int(sample["label"]), hashlib.sha256(raw[4 : 4 + size]).hexdigest()])
print(json.dumps(found))
"""


def read_by(python: str, program: str, out: Path) -> list[list[object]]:
    done = subprocess.run([python, "-c", program, str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[list[object]] = json.loads(done.stdout.strip().splitlines()[-1])
    return sorted(found)


def packed(tmp_path: Path, name: str) -> tuple[Path, list[list[object]]]:
    """A pack, and label and hash of each image as the source has them."""
    source = photographs(tmp_path / "source")
    chosen = options(source, format=name)
    pack(chosen)
    wanted = [
        [entry.label, hashlib.sha256((source / entry.source).read_bytes()).hexdigest()]
        for entry in read_manifest(chosen.out)
    ]
    assert len(wanted) == 24
    return chosen.out, sorted(wanted)


def test_mxnet_reads_recordio(tmp_path: Path) -> None:
    python = python_with("mxnet", "mxnet==1.9.1", "numpy==1.23.5", imports="mxnet")
    out, wanted = packed(tmp_path, "recordio")
    assert read_by(python, _MXNET, out) == wanted


def test_streaming_reads_mds(tmp_path: Path) -> None:
    python = python_with(
        "streaming", "mosaicml-streaming", "torch==2.14.1", "torchvision==0.29.1", imports="streaming.base.format"
    )
    out, wanted = packed(tmp_path, "mds")
    assert read_by(python, _STREAMING, out) == wanted
