"""What is said of numbers of workers that are not tried, because they would change a loader's batches. Pure.

Of a script's loader and of an imported one alike; :mod:`pipetune.hook.guards` finds it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.records.script import ScriptLoader


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


def why_not_kept(loader: ScriptLoader) -> str | None:
    """Why ``persistent_workers=True`` is not tried: it would change the training; ``None``: nothing speaks against it.

    Each worker has a copy of the data set. One that starts with each epoch gets a new copy, one that lives on keeps its
    own.
    """
    if loader.iterable:
        return "persistent_workers=True was not tried: an iterable data set goes on in each worker where it has ended"
    if loader.renewed_with_epochs:
        return (
            f"persistent_workers=True was not tried: the data set is told of each epoch "
            f"({', '.join(loader.renewed_with_epochs)}), of which workers that live on would not hear"
        )
    if loader.own_generators:
        return (
            "persistent_workers=True was not tried: the data set has random generators of its own "
            f"({', '.join(loader.own_generators)}), which would go on from epoch to epoch"
        )
    return None


def of_shards(most: int, shards: int, ranks: int = 1) -> str:
    """There are fewer shards than workers might be."""
    each = "" if ranks == 1 else f" for {ranks} ranks"
    return (
        f"more than {most} workers were not tried: the data set has {shards} shards{each}, and a worker without one "
        "yields nothing"
    )
