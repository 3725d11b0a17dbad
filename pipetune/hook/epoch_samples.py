"""Whether an epoch of an iterable data set has as many samples with other workers as with the script's own. Pure.

The samples that the training loop gets are counted, from the beginning of an epoch to its end. Where an epoch of the
script's own workers has ended, a measurement of others goes on until one of theirs has, or until the loop has got more
samples than it could: what is decided does not depend on how fast they are.
"""

from __future__ import annotations

#: Epochs are the same where they differ by less than this factor: some data sets leave samples out at random.
_SAME_EPOCH = 1.2


class EpochSamples:
    """Counts the samples of one loader's epochs.

    Args:
        drops_rest: each worker may leave out its last samples, which fill no batch.
    """

    def __init__(self, *, drops_rest: bool = False) -> None:
        self._drops_rest = drops_rest
        self.samples: int | None = None
        """Samples of a whole epoch since :meth:`begin`, once one has ended."""
        self._count, self._largest = 0, 0
        self._counts = False
        """The present epoch is counted from its beginning."""
        self._workers = self._own_workers = 0
        self._own_samples: int | None = None
        self._is_left_early = False
        """The loop has left an epoch before its end since :meth:`begin`."""

    def begin(self, workers: int, own_workers: int, own_samples: int | None) -> None:
        """Another measurement begins.

        Args:
            workers: that it has.
            own_workers: that the script has.
            own_samples: of an epoch with those; ``None``: not known.
        """
        self._workers, self._own_workers, self._own_samples = workers, own_workers, own_samples
        self.samples, self._is_left_early = None, False

    def begin_epoch(self) -> None:
        """The loop begins an epoch; the one before may have been left before its end."""
        self._is_left_early = self._is_left_early or self._counts
        self._count, self._counts = 0, True

    def take(self, samples: int, *, whole: bool) -> None:
        """Count a batch.

        Args:
            whole: all batches of this epoch are of the present workers.
        """
        self._count, self._largest = self._count + samples, max(self._largest, samples)
        self._counts = self._counts and whole

    def end_epoch(self) -> None:
        """The loop was told that the epoch has ended."""
        if self._counts:
            self.samples = self._count
        self._counts = False

    @property
    def is_awaited(self) -> bool:
        """Whether the end of an epoch has yet to be seen: of a loop that leaves its epochs early it cannot be."""
        compares = self._own_samples is not None and self._workers != self._own_workers
        return compares and self.samples is None and not self._is_left_early

    @property
    def exceeds(self) -> bool:
        """Whether the present epoch has more samples already than one with the script's own workers."""
        if self._own_samples is None or self._workers == self._own_workers or not self._counts:
            return False
        return self._count > self._most(self._own_samples)

    def find_fault(self) -> str | None:
        """In which way an epoch differs from the script's own; ``None``: it does not, or that is not known."""
        own, samples = self._own_samples, self.samples
        if own is None or self._workers == self._own_workers:
            return None
        workers = f"{self._workers} worker{'s' * (self._workers != 1)}"
        if self.exceeds or (samples is not None and samples > self._most(own)):
            number = f"at least {self._count}" if samples is None else samples
            return (
                f"an epoch has {number} samples with {workers}, and {own} with the script's own {self._own_workers}: "
                "the IterableDataset does not divide its data among workers, so each sample would come as often as "
                "there are workers"
            )
        if samples is not None and samples < self._least(own):
            return (
                f"an epoch has {samples} samples with {workers}, and {own} with the script's own {self._own_workers}: "
                "the IterableDataset is written for no other number of workers"
            )
        return None

    def _most(self, own: int) -> float:
        return _SAME_EPOCH * own + self._rest(self._own_workers)

    def _least(self, own: int) -> float:
        return own / _SAME_EPOCH - self._rest(self._workers)

    def _rest(self, workers: int) -> int:
        """Samples that so many workers leave out beyond what a single one does."""
        return max(0, workers - 1) * self._largest if self._drops_rest else 0
