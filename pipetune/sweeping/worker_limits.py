"""What is said of numbers of workers that are not tried, because they would change a loader's batches. Pure.

Of a script's loader and of an imported one alike; :mod:`pipetune.hook.guards` finds it out.
"""

from __future__ import annotations

from collections.abc import Sequence


def of_generators(names: Sequence[str]) -> str:
    """The data set has random generators of its own, under these names."""
    return (
        f"more workers were not tried: the data set has random generators of its own ({', '.join(names)}), of which "
        "every worker would have a copy that draws the same; make them in worker_init_fn"
    )


def of_told_workers(names: Sequence[str]) -> str:
    """An iterable data set has the number of workers in these attributes."""
    return (
        "other numbers of workers were not tried: the iterable data set was told theirs "
        f"({', '.join(names)}), and with another it would repeat samples or leave some out"
    )


def of_undivided(workers: int) -> str:
    """An iterable data set does not divide its samples among workers.

    Args:
        workers: that the script has.
    """
    divide = (
        "divide it, by info = torch.utils.data.get_worker_info() and itertools.islice(samples, info.id, None, "
        "info.num_workers)"
    )
    if workers > 1:
        return (
            f"your script's own {workers} workers each yield every sample, so an epoch has each sample {workers} "
            f"times: the iterable data set does not ask how many workers there are; {divide}. No other number was tried"
        )
    return (
        "more workers than 1 were not tried: the iterable data set does not ask how many workers there are, so each of "
        f"them would yield every sample; {divide}"
    )


def of_shards(most: int, shards: int, ranks: int = 1) -> str:
    """There are fewer shards than workers might be."""
    each = "" if ranks == 1 else f" for {ranks} ranks"
    return (
        f"more than {most} workers were not tried: the data set has {shards} shards{each}, and a worker without one "
        "yields nothing"
    )
