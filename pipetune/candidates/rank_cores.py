"""Which cores each of several ranks on one host may use. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

BINDINGS = ("none", "even", "numa")


def cores_of_rank(
    bind: str, cores: Sequence[int], nodes: Sequence[Collection[int]], rank: int, ranks: int
) -> frozenset[int] | None:
    """The cores of one rank; ``None``: all that the process has.

    Args:
        bind: one of :data:`BINDINGS`. ``even``: neighbours, the same number for each rank, so that a core may be left
            over; ranks share cores where there are more ranks than cores. ``numa``: those of one NUMA node, which ranks
            of that node share; ranks are spread over the nodes in their order.
        cores: those that the process may use, neighbours side by side.
        nodes: the cores of each NUMA node of the machine.
    """
    if bind == "none" or ranks < 2:
        return None
    if bind == "numa":
        own = [frozenset(node) & frozenset(cores) for node in nodes]
        own = [node for node in own if node]
        return own[rank * len(own) // ranks] if len(own) > 1 else None
    if ranks >= len(cores):
        return frozenset({cores[rank * len(cores) // ranks]})
    each = len(cores) // ranks
    return frozenset(cores[rank * each : (rank + 1) * each])
