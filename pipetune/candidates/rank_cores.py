"""Which cores each of several ranks on one host may use. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

BINDINGS = ("none", "even", "numa")


def cores_of_rank(
    bind: str, cores: Sequence[int], nodes: Sequence[Collection[int]], rank: int, ranks: int,
    near: Collection[int] = (),
) -> frozenset[int] | None:  # fmt: skip
    """The cores of one rank; ``None``: all that the process has.

    Args:
        bind: one of :data:`BINDINGS`. ``even``: neighbours, the same number for each rank, so that a core may be left
            over; ranks share cores where there are more ranks than cores. ``numa``: those of one NUMA node, which ranks
            of that node share: the node of the rank's GPU, or else ranks are spread over the nodes in their order.
        cores: those that the process may use, neighbours side by side.
        nodes: the cores of each NUMA node of the machine.
        near: cores of the node that the rank's GPU is attached to; empty: not known, or it has none.
    """
    if bind == "none" or ranks < 2:
        return None
    if bind == "numa":
        own = [frozenset(node) & frozenset(cores) for node in nodes]
        own = [node for node in own if node]
        if len(own) < 2:
            return None
        return frozenset(near) & frozenset(cores) or own[rank * len(own) // ranks]
    if ranks >= len(cores):
        return frozenset({cores[rank * len(cores) // ranks]})
    each = len(cores) // ranks
    return frozenset(cores[rank * each : (rank + 1) * each])
