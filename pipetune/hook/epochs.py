"""The epochs of the loop that is measured: when they begin and end, and what of the time between them counts. Pure.

A loader keeps its word: an epoch has as many batches as the script's own loader would deliver, so a measurement goes on
over epochs. From the request that ends an epoch on, the script does other things: evaluates, saves, adjusts its
schedule. That is no part of the rate, until it iterates over the loader anew. What the loader itself does there is part
of it: its workers end, and start again.

- Where whole epochs are measured, the wait for the first batch and the end of the workers are in the rate at their true
  share.
- Where a measurement is shorter than an epoch, whether one begins within it is chance: what the start takes beyond what
  the first batch of each worker would have been waited for anyway is left out, and
  :mod:`pipetune.measure.script.epoch_start` counts it once per epoch.

Loops that take a batch ahead are told of the end before they have trained on their last batch: an optimizer step after
that still belongs to the epoch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune.records.sweep import StepTime

#: A loop that steps so often after the end of an epoch, and as often as two epochs have batches, without a batch of any
#: loader goes over batches that it has kept, as ``itertools.cycle(loader)`` does.
_STEPS_ON_KEPT, _EPOCHS_ON_KEPT = 64, 2


class Epochs:
    """What is known of the epochs since a measurement was asked for."""

    def __init__(self) -> None:
        self.batches: int | None = None
        """That the loop took in its last pass over the loader, once it has made one."""
        self.skipped_ns = 0
        self.spans: list[tuple[int, int]] = []
        """What is left out: beginning and end of each part (ns), in their order."""
        self.starts: list[tuple[float, float]] = []
        """Of each epoch that began: wait for the first batch, and for the end of the workers before it (s)."""
        self._asked_ns: int | None = None
        """The request that ended the last epoch; ``None``: the loop is within one."""
        self._stopped_ns = 0
        self._stepped_ns = 0
        self._steps = 0
        """Since the last batch of any loader, outside of an epoch."""
        self._began_ns: int | None = None
        """The loop has iterated anew, and waits for its first batch."""
        self._end_s = 0.0
        self._waited_s, self._waits = 0.0, 0

    def restart(self, *, keep_length: bool) -> None:
        """Another measurement begins, in the middle of an epoch or at its end."""
        self.batches = self.batches if keep_length else None
        self.skipped_ns, self.spans, self.starts = 0, [], []
        self._waited_s, self._waits = 0.0, 0

    @property
    def within_one(self) -> bool:
        """The loop is within an epoch."""
        return self._asked_ns is None

    def end(self, asked_ns: int, stopped_ns: int, batches: int) -> None:
        """The loop was told that the epoch has ended.

        Args:
            asked_ns: when it asked.
            batches: that it took in this epoch.
        """
        self._asked_ns, self._stopped_ns, self._stepped_ns, self._steps = asked_ns, stopped_ns, 0, 0
        self.batches = batches or self.batches

    def step(self, now_ns: int) -> None:
        """An optimizer has stepped."""
        if self._asked_ns is not None:
            self._stepped_ns = now_ns
            self._steps += 1

    def wait_for_others(self, span_ns: int) -> int:
        """The loop has waited for a batch of another loader; returns how much of that is in a step (ns)."""
        self._steps = 0
        return span_ns if self.within_one else 0

    @property
    def trains_on_kept(self) -> bool:
        """The loop goes over batches that it has kept, and may not ask the loader again."""
        return self._steps >= max(_STEPS_ON_KEPT, _EPOCHS_ON_KEPT * (self.batches or 0))

    def begin(self, now_ns: int, last_end_ns: int | None, batches: int) -> None:
        """The loop iterates anew.

        Args:
            last_end_ns: when the last step ended whose end is known. Where the loop left the epoch before its end, that
                is the step before its last.
            batches: that it took in the epoch before.
        """
        if self._asked_ns is None:
            self.batches = batches or self.batches
            self._end_s, since_ns = 0.0, now_ns if last_end_ns is None else last_end_ns
        else:
            self._end_s = max(0, self._stopped_ns - self._asked_ns) / 1e9
            since_ns = max(self._stopped_ns, self._stepped_ns)
        self._leave_out(since_ns, now_ns)
        self._asked_ns, self._began_ns = None, now_ns

    def asked_for_first(self, asked_ns: int, got_ns: int, workers: int, *, whole: bool) -> int:
        """When the loop began to wait for a batch that has come (ns): of an epoch's first one, when it iterated anew.

        Args:
            workers: that the loader has.
            whole: whole epochs are measured, so that the start is in the rate.
        """
        if self._began_ns is None:
            return asked_ns
        first_s, began_ns = (got_ns - self._began_ns) / 1e9, self._began_ns
        self.starts.append((first_s, self._end_s))
        self._began_ns = None
        if whole:
            return began_ns - round(self._end_s * 1e9)
        usual_s = workers * self._waited_s / self._waits if self._waits else 0.0
        beyond_ns = max(0, round((first_s + self._end_s - usual_s) * 1e9))
        since_ns = max(began_ns, got_ns - beyond_ns)
        self._leave_out(since_ns, got_ns)
        # The workers' end lies before what is left out between the epochs.
        self.skipped_ns += max(0, beyond_ns - (got_ns - since_ns))
        return got_ns - (since_ns - began_ns)

    def waited(self, wait_s: float) -> None:
        """A batch other than an epoch's first was waited for."""
        self._waited_s, self._waits = self._waited_s + wait_s, self._waits + 1

    def _leave_out(self, since_ns: int, until_ns: int) -> None:
        # Some loops iterate anew twice before they take a batch.
        since_ns = max(since_ns, self.spans[-1][1] if self.spans else 0)
        if until_ns > since_ns:
            self.skipped_ns += until_ns - since_ns
            self.spans.append((since_ns, until_ns))

    def without_gaps(self, step: StepTime) -> StepTime:
        """The step as if epochs followed each other at once."""
        if not self.skipped_ns:
            return step
        skipped = self.skipped_ns
        return replace(step, t_start_ns=step.t_start_ns - skipped, t_end_ns=step.t_end_ns - skipped)

    def describe(self) -> dict[str, Any]:
        """The fields of a message about the epochs until now."""
        return {"epoch_starts": self.starts, "apart": self.spans}
