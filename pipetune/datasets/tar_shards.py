"""WebDataset shards: tar files whose members ``KEY.jpg`` and ``KEY.cls`` are an image and its label.

Why ``tarfile`` and not webdataset: it gives each member's offset; webdataset streams whole samples instead, and leaves
links out. Every member is used, named or counted.

Source of the format: the WebDataset documentation and POSIX.1-1988 ustar; see :mod:`pipetune.datasets.tar_samples`.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator

from pipetune.datasets.folder_walk import ENDINGS, OTHER_IMAGE_ENDINGS
from pipetune.datasets.labels import LabelError, parse_label
from pipetune.datasets.shard_members import Found, Member, Tally, describe_damage, open_shard, too_large
from pipetune.datasets.shard_names import COMPRESSED
from pipetune.datasets.tar_links import Extent, LinkMap, stored_extent
from pipetune.datasets.tar_samples import LABEL_ENDING, Entry, assemble, split_name

#: Largest label file, which holds a number or a name.
_MAX_LABEL_BYTES = 256
#: Largest header, with all that belongs to it (long names, pax records).
_MAX_HEADER_BYTES = 1 << 20
#: So many zeros behind the last member are its end, whatever comes then.
_MOST_ZEROS = 64 << 20
#: Names that WebDataset keeps for itself.
_METADATA = re.compile(r"__[^/]*__($|/)")
_KINDS = {tarfile.CHRTYPE: "a character device", tarfile.BLKTYPE: "a block device", tarfile.FIFOTYPE: "a named pipe"}
#: Endings of other members that are counted apart; somebody may have made up as many as members.
_MAX_OTHER_KINDS, _MAX_ENDING = 32, 12


class _Headers(io.FileIO):
    """A shard as ``tarfile`` reads it, which asks for as many bytes as a header says."""

    def __init__(self, shard: str) -> None:
        fd, self.bytes = open_shard(shard)
        super().__init__(fd, "rb", closefd=True)

    def read(self, size: int | None = -1, /) -> bytes:
        """At most what a header may have.

        Raises:
            ValueError: it asks for more, or for everything.
        """
        if size is None or not 0 <= size <= _MAX_HEADER_BYTES:
            raise ValueError(f"a header of {size} bytes")
        return super().read(size) or b""


def members_of_tar(shard: str) -> Found:
    """The images of one shard, and what cannot be used; only tar headers and label files are read.

    What stands before damage counts: a shard may be cut off, or be a file that somebody has made up.
    """
    members: list[Member] = []
    reader = _Reader(shard)
    damage = None
    try:
        with _Headers(shard) as file:
            damage = reader.read_headers(file)
            reader.follow_links(file)
            members = reader.assemble_members(file)
    except OSError as error:
        damage = error.strerror or str(error)
    if damage is not None:
        reader.tally.report_damage(shard, describe_damage(len(members), damage))
    return Found(members, reader.tally)


def _iterate(file: _Headers) -> Iterator[tarfile.TarInfo]:
    """The headers of a shard.

    Raises:
        TarError, ValueError, OverflowError, MemoryError, RecursionError, TypeError, AttributeError: the shard is
            damaged; tarfile does not expect everything that a header can say.
        OSError: it cannot be read.
    """
    file.seek(0)
    with tarfile.open(fileobj=file, mode="r:") as tar:
        last_offset = -1
        for info in tar:
            if info.offset <= last_offset or info.size < 0:
                raise tarfile.ReadError("a header that leads backwards")
            last_offset = info.offset
            yield info
            tar.members = []  # type: ignore[attr-defined]  # or it would keep them all
        # tarfile takes any block that is no header for the end.
        if not _ends_at(file, tar.offset):
            raise tarfile.ReadError(f"no header at byte {tar.offset}, and data behind it")


_DAMAGE = (tarfile.TarError, ValueError, OverflowError, MemoryError, RecursionError, TypeError, AttributeError)


class _Reader:
    """Reads one shard: its headers, where its links lead, and then its label files."""

    def __init__(self, shard: str) -> None:
        self.tally = Tally()
        self._shard = shard
        self._entries: list[Entry] = []
        self._linked: list[tuple[int, Entry]] = []
        """(offset of the header, entry) of links."""
        self._links = LinkMap()
        self._plain_keys: set[str] = set()
        self._run, self._last_key = 0, ""

    def read_headers(self, file: _Headers) -> str | None:
        """Note all members; why the shard is damaged, or ``None``."""
        first = True
        try:
            for info in _iterate(file):
                first = False
                if not info.isdir():
                    self._take(info, file)
        except tarfile.TarError as error:
            return f"not a tar file: {error}" if first else str(error)
        except _DAMAGE as error:
            return str(error) or type(error).__name__
        return None

    def follow_links(self, file: _Headers) -> None:
        """Read the headers again where there are links, and find what they lead to."""
        if not self._links:
            return
        try:
            for info in _iterate(file):
                self._links.add_member(info)
        except _DAMAGE:
            pass  # it was told at the first reading
        for offset, entry in self._linked:
            target = self._links.resolve(offset, entry.name)
            if isinstance(target, str):
                entry.reason = target
            else:
                entry.start, entry.size = target
                entry.reason = _find_fault(entry, target.size, file.bytes)
                self.tally.links += 1

    def assemble_members(self, file: _Headers) -> list[Member]:
        """The images with their labels."""
        samples = assemble(self._entries, self._plain_keys)
        self.tally.dotted += len(samples.dotted)
        for entry, reason in samples.rejected:
            self.tally.reject(self._place(entry.name), entry.reason or reason)
        for entry, reason in samples.unmatched:
            self.tally.report_label(self._place(entry.name), entry.reason or reason)
        members = []
        for image, label in samples.images:
            if image.reason:
                self.tally.reject(self._place(image.name), image.reason)
                continue
            try:
                own_label = None if label is None else _read_label(file, label)
            except LabelError as error:
                self.tally.unmatched += 1
                self.tally.reject(self._place(image.name), str(error))
                continue
            folder = "/".join(part for part in os.path.dirname(image.name).split("/") if part not in ("", "."))
            members.append(Member(self._shard, image.name, image.start, image.size, own_label, folder=folder))
        return members

    def _take(self, info: tarfile.TarInfo, file: _Headers) -> None:
        base = os.path.basename(info.name).lower()
        if info.islnk() or info.issym():
            self._links.add_link(info)
        if _METADATA.match(info.name) or base.startswith("."):
            self._count_other(info, "hidden" if base.startswith(".") else "metadata")
            return
        key, ending = split_name(info.name)
        if key != self._last_key:
            self._run, self._last_key = self._run + 1, key
        stem, compression = os.path.splitext(base)
        plain = stem if compression in COMPRESSED else base
        is_label = plain.endswith(f".{LABEL_ENDING}")
        if is_label or plain.endswith((*ENDINGS, *OTHER_IMAGE_ENDINGS)):
            self._add_entry(info, file, is_label, "" if plain == base else compression)
            return
        if ending and "." not in ending:
            self._plain_keys.add(key)
        self._count_other(info, base.rpartition(".")[2] if ending else "no ending")

    def _add_entry(self, info: tarfile.TarInfo, file: _Headers, is_label: bool, compression: str) -> None:
        """Note an image or a label file, or a link that is to be one."""
        extent = stored_extent(info) if info.isreg() else Extent(0, 0)
        entry = Entry(info.name, is_label, self._run, *(extent or Extent(0, 0)))
        if is_label:
            self.tally.labels += 1
        else:
            self.tally.members += 1
        if info.islnk() or info.issym():
            self._linked.append((info.offset, entry))
        elif not info.isreg():
            entry.reason = _describe_kind(info)
        elif compression:
            entry.reason = f"is compressed ({compression}): unpack it before it is put into a shard"
        elif extent is None or (is_label and extent.size != info.size):
            entry.reason = "a sparse member with holes, which cannot be read at one place: tar it without --sparse"
        else:
            entry.reason = _find_fault(entry, info.size if is_label else extent.size, file.bytes)
        self._entries.append(entry)

    def _count_other(self, info: tarfile.TarInfo, kind: str) -> None:
        self.tally.members += 1
        if not info.isreg() and not (info.islnk() or info.issym()):
            kind = _describe_kind(info)
        is_known = kind in self.tally.other or len(self.tally.other) < _MAX_OTHER_KINDS
        printable = kind.isprintable() and len(kind) <= max(_MAX_ENDING, len("a character device"))
        self.tally.other[kind if is_known and printable else "others"] += 1

    def _place(self, name: str) -> str:
        return f"{self._shard}/{name!a}" if "\0" in name else f"{self._shard}/{name}"


def _find_fault(entry: Entry, size: int, shard_bytes: int) -> str:
    """Why a member cannot be used, by its name and size; ``""``: it can."""
    ending = os.path.splitext(entry.name)[1].lower()
    if "\0" in entry.name:
        return "its name has a zero byte"
    if entry.start + entry.size > shard_bytes:
        return "cut off: the shard ends before it"
    if entry.is_label:
        return f"a label of {size:,} bytes, more than {_MAX_LABEL_BYTES}" if size > _MAX_LABEL_BYTES else ""
    if ending in OTHER_IMAGE_ENDINGS:
        return f"{ending} images are not read"
    return "is empty" if size == 0 else too_large(size) or ""


def _read_label(file: _Headers, label: Entry) -> int | str:
    """The class in a label file.

    Raises:
        LabelError: it is none.
    """
    if label.reason:
        raise LabelError(label.reason)
    return parse_label(os.pread(file.fileno(), label.size, label.start))


def _describe_kind(info: tarfile.TarInfo) -> str:
    return _KINDS.get(info.type) or f"a member of type {info.type.decode('latin-1')!r}"


def _ends_at(file: _Headers, offset: int) -> bool:
    """Whether a shard ends there: with the file, or with zeros, at which :data:`_MOST_ZEROS` bytes are looked at."""
    end = min(file.bytes, offset + _MOST_ZEROS)
    while offset < end:
        piece = os.pread(file.fileno(), min(1 << 20, end - offset), offset)
        if not piece or piece.strip(b"\0"):
            return not piece
        offset += len(piece)
    return True
