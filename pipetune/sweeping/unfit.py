"""Candidates that the machine had too little memory for, looked at again while the sweep goes on.

A small virtual machine may begin with little memory that grows as it is used, and /dev/shm can be given more space at
any time. What was short at the start may be there when a candidate's turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pipetune.candidates.fit import LACKS_MEMORY, LACKS_SHARED_MEMORY
from pipetune.candidates.space import Space
from pipetune.machine.host import Host
from pipetune.records.sweep import Candidate, Failure

#: Says which of some candidates cannot run on a host, and why.
FindObstacles = Callable[[Collection[Candidate], Host], Mapping[Candidate, Failure]]


class UnfitCandidates:
    """Candidates that do not fit on this machine; the number only goes down.

    Args:
        pairs: candidates, and what each lacks.
        find_obstacles: decides it anew.
        read_host: the machine as it is now.
    """

    def __init__(
        self,
        pairs: tuple[tuple[Candidate, Failure], ...],
        find_obstacles: FindObstacles,
        read_host: Callable[[], Host],
    ) -> None:
        self.pairs = pairs
        self._find_obstacles, self._read_host = find_obstacles, read_host

    def look_again(self) -> None:
        """Drop those that fit by now. Candidates are gone through only where the least that was short is there."""
        least: dict[str, int] = {}
        for _, failure in self.pairs:
            if failure.needed is not None:
                least[failure.kind] = min(failure.needed, least.get(failure.kind, failure.needed))
        if not least:
            return
        host = self._read_host()
        there = {LACKS_MEMORY: host.memory_available_bytes, LACKS_SHARED_MEMORY: host.shm_free_bytes}
        if any((there.get(kind) or 0) >= needed for kind, needed in least.items()):
            self.pairs = tuple(self._find_obstacles([candidate for candidate, _ in self.pairs], host).items())

    def exclude_from(self, space: Space) -> Space:
        """The space without them."""
        excluded = frozenset(candidate for candidate, _ in self.pairs)
        return space if space.excluded == excluded else replace(space, excluded=excluded)
