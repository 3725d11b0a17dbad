"""WebDataset shards: tar files in which ``KEY.jpg`` and ``KEY.cls`` lie together.

Sources: the WebDataset documentation, POSIX.1-1988 (ustar). Names of more than 100 bytes, which ustar splits at a slash
where it can, get GNU's long names, which every reader knows. Owner, time and mode are the same in each, so that the
shards are a function of their samples alone.
"""

from __future__ import annotations

import tarfile

from pipetune.packing.formats.contract import Format, Place, Sample
from pipetune.packing.formats.shard_file import ShardFile

_BLOCK = 512
_ZEROS = bytes(_BLOCK)


class TarWriter(ShardFile):
    """See :class:`pipetune.packing.formats.contract.ShardWriter`."""

    def add(self, sample: Sample) -> Place:
        """The image first, because readers that stream look for it first."""
        start = self._member(f"{sample.key}.{sample.ending}", sample.data)
        self._member(f"{sample.key}.cls", str(sample.label).encode("ascii"))
        return Place(self.name, start, len(sample.data))

    def end(self) -> None:
        """Two blocks of zeros."""
        self.write(2 * _ZEROS)

    def _member(self, name: str, data: bytes) -> int:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), 0o444
        self.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
        start = self.at
        self.write(data, _ZEROS[: -len(data) % _BLOCK])
        return start


WEBDATASET = Format(
    name="webdataset", shard_name="shard-{:06d}.tar".format, open=TarWriter,
    per_sample_bytes=2 * _BLOCK + 1.5 * _BLOCK,  # two headers, the label's block, half of the image's last
)  # fmt: skip
