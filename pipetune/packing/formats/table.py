"""The formats by name."""

from __future__ import annotations

from pipetune.errors import UsageError, did_you_mean
from pipetune.packing.formats.contract import Format
from pipetune.packing.formats.folder import FOLDER
from pipetune.packing.formats.mds import MDS
from pipetune.packing.formats.raw import RAW
from pipetune.packing.formats.recordio import RECORDIO
from pipetune.packing.formats.tfrecord import TFRECORD
from pipetune.packing.formats.webdataset import WEBDATASET

FORMATS: dict[str, Format] = {one.name: one for one in (WEBDATASET, RECORDIO, FOLDER, RAW, MDS, TFRECORD)}


def format_of(name: str) -> Format:
    """The format.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in FORMATS:
        raise UsageError(f"--format {name!r} is unknown", hint=did_you_mean(name, FORMATS))
    return FORMATS[name]
