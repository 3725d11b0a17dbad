"""Measures what was predicted, as near to the question as this machine can be put, and says how wrong it was."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from pipetune.answering.answer import answer
from pipetune.answering.base import Base
from pipetune.answering.changed import Refused
from pipetune.answering.changed_speed import AS_MEASURED, machine_factor
from pipetune.answering.nearest import NotHereError, nearest
from pipetune.answering.targets import Maker, Target, limits_of_target
from pipetune.errors import PipetuneError
from pipetune.explaining.run import ExplainObserver
from pipetune.machine.host import Host
from pipetune.machine.limits import CannotLimitError
from pipetune.machine.numa import side_by_side
from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure import harness, page_cache
from pipetune.measure.conditions import Conditions, Live
from pipetune.measure.fork_servers import ForkServers
from pipetune.records.prediction import Answer, Check, Question
from pipetune.records.sweep import Outcome
from pipetune.stats.noise import run_noise
from pipetune.stats.rates import mean_of_blocks
from pipetune.store.folder import RunFolder

#: The run's own configuration is measured before each so many questions of a block.
CONTROL_EVERY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This machine."""

    cores: float
    memory_bytes: int | None
    devices: int
    """CUDA devices."""


def here_of(host: Host, devices: int) -> Here:
    """What this process may use."""
    known = [size for size in (host.memory_total_bytes, host.memory_limit_bytes) if size is not None]
    return Here(cores=host.cores_usable, memory_bytes=min(known, default=None), devices=devices)


class Bench:
    """Measures targets and keeps every outcome."""

    def __init__(self, folder: RunFolder, observer: ExplainObserver) -> None:
        self.outcomes: list[Outcome] = []
        self.not_here: dict[str, str] = {}
        """What turned out not to be measurable -> why."""
        self._folder, self._observer = folder, observer
        # Half of a machine's threads are half of what it can do only with both threads of each of its cores.
        self._allowed = side_by_side(os.sched_getaffinity(0))

    def measure_all(self, targets: Sequence[Target], blocks: int, seed: int, control: Target | None = None) -> None:
        """Each target once in each block, in random order.

        Args:
            control: is measured again and again between them: the run's own configuration.

        Raises:
            KeyboardInterrupt, Interrupted: asked to stop; what was measured is kept.
            PipetuneError: the disk refuses.
        """
        order = list(in_turn(targets, blocks, seed, control))
        with HeldGpus() as gpus:
            for number, (block, target) in enumerate(order, start=1):
                if target.text not in self.not_here:
                    self._measure(target, block, number, len(order), gpus)

    def _measure(self, target: Target, block: int, number: int, total: int, gpus: HeldGpus) -> None:
        def keep(outcome: Outcome) -> None:
            outcome = replace(outcome, block=block, part=target.text)
            self.outcomes.append(outcome)
            self._folder.append_outcome(outcome)
            self._observer.on_outcome(outcome, number, total)
            if outcome.failure is not None:
                self.not_here[target.text] = outcome.failure.message

        def on_live(live: Live) -> None:
            self._observer.on_live(target.text, number, total, live)

        try:
            self._under_limits(target, gpus, keep, on_live)
        except (NotHereError, CannotLimitError) as reason:
            self.not_here[target.text] = str(reason)

    def _under_limits(
        self, target: Target, gpus: HeldGpus, keep: Callable[[Outcome], None], on_live: Callable[[Live], None]
    ) -> None:  # fmt: skip
        paths = () if target.images is None else target.images.files
        little_memory = target.question.memory_bytes is not None
        if little_memory:
            _drop(paths)  # pages are charged to whoever reads them first
        with contextlib.ExitStack() as stack:
            stack.enter_context(_on_cores(self._allowed[: target.cores], self._allowed))
            stack.enter_context(limits_of_target(target))
            servers = stack.enter_context(ForkServers())
            servers.begin(target.workload.accelerator)
            conditions = Conditions(
                workload=target.workload,
                paths=paths,
                cores=frozenset(os.sched_getaffinity(0)),
                servers=servers,
                gpus=gpus,
            )
            if little_memory:
                # A first epoch, in another order, fills the memory; without paths it is left as it is then.
                other = replace(target.workload, seed=target.workload.seed + 1)
                _once(target, replace(conditions, workload=other, paths=()), lambda _: None, on_live)
                conditions = replace(conditions, paths=())
            _once(target, conditions, keep, on_live)


def in_turn(
    targets: Sequence[Target], blocks: int, seed: int, control: Target | None = None
) -> Iterator[tuple[int, Target]]:
    """What is measured one after the other, each with the number of its block, from 1 on.

    Args:
        control: comes first in each block, and again after each :data:`CONTROL_EVERY` others.
    """
    asked = [target for target in targets if control is None or target.text != control.text]
    for block in range(1, blocks + 1):
        for number, target in enumerate(Random(seed * 1000 + block).sample(asked, len(asked))):
            if control is not None and number % CONTROL_EVERY == 0:
                yield block, control
            yield block, target
        if control is not None and not asked:
            yield block, control


def _drop(paths: Sequence[str]) -> None:
    try:
        state = page_cache.equalise(paths, "cold")
    except (OSError, RuntimeError) as error:
        raise NotHereError(f"the images cannot be read: {error}") from error
    if state.note is not None:
        raise NotHereError(state.note)


def _once(
    target: Target, conditions: Conditions, keep: Callable[[Outcome], None], on_live: Callable[[Live], None]
) -> None:  # fmt: skip
    outcome, recording = harness.measure(
        target.candidate, "candidate", conditions, run_noise=run_noise((), ()), on_live=on_live
    )
    if conditions.paths and conditions.workload.cache == "cold" and outcome.measurement is not None:
        there = recording.resident_frac
        if there is None or there > page_cache.COLD_FRAC:
            if recording.stopped is not None:
                raise recording.stopped
            raise NotHereError("the files could not be dropped from memory, or not be seen to be")
    keep(outcome)
    if recording.stopped is not None:
        raise recording.stopped


@contextlib.contextmanager
def _on_cores(cores: Sequence[int], before: Sequence[int]) -> Iterator[None]:
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def check_answers(
    answers: Sequence[Answer], base: Base, maker: Maker, bench: Bench, here: Here, *, blocks: int, seed: int,
    on_stop: Callable[[KeyboardInterrupt | PipetuneError], None],
) -> tuple[Answer, ...]:  # fmt: skip
    """The answers, each with its check or why there is none.

    Args:
        on_stop: is told where pipetune was asked to stop, or the disk refuses; what was measured until then counts.
    """
    targets: dict[int, tuple[Target, tuple[str, ...]]] = {}
    reasons: dict[int, str] = {}

    def prepared(question: Question, text: str | None = None) -> tuple[Target, tuple[str, ...]]:
        asked, notes = nearest(
            question, base, cores_here=here.cores, memory_here=here.memory_bytes, devices_here=here.devices
        )
        return maker.target(asked, cores_here=here.cores, text=text), notes

    as_measured: tuple[Target, tuple[str, ...]] | None = None
    try:
        with contextlib.suppress(NotHereError, CannotLimitError, Refused, PipetuneError):
            as_measured = prepared(Question(), AS_MEASURED)
        for number, one in enumerate(answers):
            if one.prediction is None:
                continue
            try:
                targets[number] = prepared(one.question)
            except (NotHereError, CannotLimitError, Refused, PipetuneError) as reason:
                reasons[number] = str(reason)
        wanted = {target.text: target for target, _ in targets.values()}
        if wanted:
            control = None if as_measured is None or as_measured[1] else as_measured[0]
            bench.measure_all(list(wanted.values()), blocks, seed, control)
    except (KeyboardInterrupt, PipetuneError) as stop:
        on_stop(stop)
    # On another machine it is not what the run had measured.
    again = None if as_measured is None or as_measured[1] else _mean(bench.outcomes, AS_MEASURED)
    return tuple(
        _with_check(one, targets.get(number), reasons.get(number), bench, base, None if again is None else again[0])
        for number, one in enumerate(answers)
    )


def _with_check(
    one: Answer, measured: tuple[Target, tuple[str, ...]] | None, reason: str | None, bench: Bench, base: Base,
    again: float | None,
) -> Answer:  # fmt: skip
    if one.prediction is None:
        return one
    if measured is None:
        return replace(one, not_checked=reason or "pipetune was stopped before it was measured")
    target, notes = measured
    found = _mean(bench.outcomes, target.text)
    factor = machine_factor(base, bench.outcomes, target.text)
    here = base if factor is None else replace(base, costs=base.costs.faster(factor))
    prediction = answer(target.question, here).prediction
    if found is None or prediction is None:
        why = bench.not_here.get(target.text) or "pipetune was stopped before it was measured"
        return replace(one, not_checked=why)
    rate, ci95 = found
    if target.question.image_size is not None and target.workload.accelerator.kind == "emulated":
        notes = (*notes, "the accelerator was emulated at the predicted rate, so only the loader was checked")
    return replace(one, check=Check(
        question=target.question, prediction=prediction, samples_per_s=rate, ci95=ci95, base_samples_per_s=again,
        error_frac=prediction.samples_per_s / rate - 1, machine_factor=factor, notes=notes,
    ))  # fmt: skip


def _mean(outcomes: Sequence[Outcome], text: str) -> tuple[float, tuple[float, float]] | None:
    """Mean rate over the blocks, with its 95 % interval; ``None``: nothing was measured."""
    measured = [outcome.measurement for outcome in outcomes if outcome.part == text and outcome.measurement]
    return mean_of_blocks([(m.samples_per_s, m.ci95) for m in measured]) if measured else None
