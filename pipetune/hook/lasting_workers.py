"""Whether workers may live on from epoch to epoch, by what the script was seen to do. Imports no torch."""

from __future__ import annotations

from collections.abc import Collection

TAKEN_BESIDE = (
    "the script takes batches of the same loader beside its loop, as next(iter(loader)) does: with "
    "persistent_workers=True that would begin the loop's epoch anew"
)


def refuse_lasting_workers(*, renewed: Collection[str], is_taken_beside: bool) -> None:
    """Refuse workers that are asked to live on, where that would change the training.

    Args:
        renewed: attributes of the data set that the script changes between epochs.
        is_taken_beside: the loader was iterated while an epoch of it was not over. torch has a single iterator of
            workers that live on, and begins it anew.

    Raises:
        ValueError: it would.
    """
    if renewed:
        raise ValueError(
            f"the script changes the data set between epochs ({', '.join(sorted(renewed))}): workers that live on "
            "would not see it"
        )
    if is_taken_beside:
        raise ValueError(TAKEN_BESIDE)
