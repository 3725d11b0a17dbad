"""Links within a tar file, and sparse members: where the bytes lie that they stand for.

A hard link has the whole name of a member that comes before it. A symbolic link has a path that begins at its own
folder, and the last member of that name counts, as it does once the tar file is unpacked. Sources: POSIX.1-1988 ustar;
``_find_link_target`` of Python's ``tarfile``; GNU tar's manual, "Storing Sparse Files".
"""

from __future__ import annotations

import posixpath
import tarfile
from dataclasses import dataclass
from typing import NamedTuple

#: Links that lead to links are followed so far, as Linux does.
_MAX_LINKS = 40


class Extent(NamedTuple):
    """Bytes of a shard that lie together."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class _Target:
    offset: int
    """Of the member's header."""
    extent: Extent | None
    """``None``: its bytes do not lie together."""
    is_symbolic: bool = False
    leads_to: str | None = None
    """Of a link, the name that it leads to."""


class LinkMap:
    """The links of a shard, and the members that they lead to."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[_Target]] = {}
        self._needed: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._needed)

    def add_link(self, info: tarfile.TarInfo) -> None:
        """Note a hard or symbolic link."""
        target = normalise_target(info)
        self._needed.add(target)
        link = _Target(info.offset, None, info.issym(), target)
        self._by_name.setdefault(posixpath.normpath(info.name), []).append(link)

    def add_member(self, info: tarfile.TarInfo) -> None:
        """Note a regular member, where a link that was noted before leads to its name."""
        name = posixpath.normpath(info.name)
        if info.isreg() and name in self._needed:
            self._by_name.setdefault(name, []).append(_Target(info.offset, stored_extent(info)))

    def resolve(self, info_offset: int, name: str) -> Extent | str:
        """The bytes that a link stands for, or why there are none.

        Args:
            info_offset: of the link's header.
            name: of the link.
        """
        targets = self._by_name[posixpath.normpath(name)]
        link = next(target for target in targets if target.offset == info_offset)
        for _ in range(_MAX_LINKS):
            assert link.leads_to is not None
            members = self._by_name.get(link.leads_to, [])
            if not link.is_symbolic:
                members = [member for member in members if member.offset < link.offset]
            if not members:
                return f"a link to {link.leads_to!r}, which is no member of the shard"
            # Headers come in two readings, so the order of the list is not that of the shard.
            link = max(members, key=lambda member: member.offset)
            if link.leads_to is None:
                return link.extent or "a link to a sparse member with holes between its data"
        return f"a link that leads to more than {_MAX_LINKS} others"


def normalise_target(info: tarfile.TarInfo) -> str:
    """The name of the member that a link leads to, without ``.`` and ``..``."""
    if info.issym():
        return posixpath.normpath(posixpath.join(posixpath.dirname(info.name), info.linkname))
    return posixpath.normpath(info.linkname)


def stored_extent(info: tarfile.TarInfo) -> Extent | None:
    """The bytes of a member, without the zeros that a sparse one has behind its data.

    ``None``: it has holes before or between its data. Bytes behind the end of an image are not looked at by decoders.
    """
    pieces = getattr(info, "sparse", None)
    if pieces is None:
        return Extent(info.offset_data, info.size)
    end = 0
    for offset, size in pieces:
        if size and offset != end:
            return None
        end += size
    return Extent(info.offset_data, end)
