"""The loop of a sweep: propose -> measure -> save -> yield. No torch, no printing.

Its only state is the list of outcomes, which the run folder holds as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pipetune import search
from pipetune.datasets.index import read_index, replace_images, write_index
from pipetune.measure import harness
from pipetune.measure.failures import may_be_a_bad_image
from pipetune.measure.harness import Live
from pipetune.measure.machine_speed import Speed
from pipetune.measure.recording import Recording
from pipetune.predicting.candidates import predict_candidate
from pipetune.records.prediction import Prediction
from pipetune.records.sweep import Candidate, Outcome, Workload
from pipetune.search import Proposal
from pipetune.search.pooled import expected_felt_frac, repetitions
from pipetune.stats.ceilings import restate
from pipetune.stats.noise import device_noise, run_noise
from pipetune.sweeping.drifted import drifted
from pipetune.sweeping.lost_device import check_device
from pipetune.sweeping.next_proposal import (
    SoFar,
    has_own_start,
    has_time_for,
    is_dear,
    name_role,
    needs_ceiling,
    needs_new_process,
    next_proposal,
    propose_ceiling,
    propose_repeated_ceiling,
)
from pipetune.sweeping.observer import Event
from pipetune.sweeping.own_failure import check_script, explain_no_ceiling
from pipetune.sweeping.question import question_for
from pipetune.sweeping.sweep_plan import Plan

#: The ceiling of an emulated accelerator is known beforehand; it is measured only to check the bench itself.
_EMULATED_CEILING_S = 1.5
#: Share of the images that only one backend may refuse before that is the backend's fault and not the images'.
_FEW_BAD = 0.01
#: Why images are tried one by one.
_BAD_IMAGE = "an image does not decode"
#: Age up to which the reading of the machine's speed after one candidate is the one before the next, too (s).
_SPEED_HOLDS_S = 2.0
#: A drifted candidate is measured this often before it is believed.
_ATTEMPTS = 2

#: Called with each outcome and its recording before the outcome is yielded; must have them on disk when it returns.
Save = Callable[[Outcome, Recording], None]
#: Measures one candidate: :func:`pipetune.measure.harness.measure`.
Measure = Callable[..., tuple[Outcome, Recording]]
#: Finds the images that a backend cannot decode: :func:`pipetune.measure.harness.find_bad_images`.
FindBadImages = Callable[..., dict[int, str]]


def sweep(
    plan: Plan,
    save: Save,
    on_event: Callable[[Event], None],
    known: Sequence[Outcome] = (),
    *,
    measure: Measure = harness.measure,
    find_bad_images: FindBadImages = harness.find_bad_images,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Outcome]:
    """Measure the ceiling, then one candidate after the other until the search is done or the budget is spent.

    Args:
        known: outcomes of the same sweep before it was interrupted. They are neither measured nor yielded again, except
            for failures: their cause may have been mended.
        measure: measures one candidate (:func:`pipetune.measure.harness.measure`).
        find_bad_images: has a backend decode every image (:func:`pipetune.measure.harness.find_bad_images`).
        clock: seconds.

    Raises:
        FailsAgainError: the ceiling could not be measured; without it no share of it can be stated. Or the script that
            is tuned fails as it is.
        PipetuneError: the device was lost, and no further candidate can be measured.
    """
    bench = _Bench(
        plan, save, on_event, [outcome for outcome in known if outcome.measurement], measure, find_bad_images, clock
    )
    yield from bench.measure_ceiling()
    yield from bench.measure_ceilings_of_other_batches()
    while True:
        again = bench.unfinished()
        if again is not None:
            proposal: Proposal | None = Proposal(candidate=again.candidate, why=again.why or "", block=again.block)
        else:
            if plan.unfit is not None:
                plan.unfit.look_again()
            proposal = next_proposal(plan, bench.so_far)
        if proposal is None:
            return
        yield from bench.measure_ceiling_of_block(proposal.block)
        for attempt in range(again.attempt + 1 if again else 1, _ATTEMPTS + 1):
            yield from bench.measure_proposal(proposal, attempt)
            check_device(bench.candidates)
            check_script(plan, bench.candidates)
            yield from bench.repeat_refuted_ceiling()
            has_started = has_own_start(plan, proposal, bench.candidates) or not bench.candidates[-1].forked
            if plan.in_script and (has_started or _is_clear(plan, bench.candidates[-1])):
                break  # too dear to be repeated, or at another speed of the machine the answer would be the same
            if not drifted(bench.candidates) or not has_time_for(plan, proposal, bench.so_far):
                break


def _is_clear(plan: Plan, outcome: Outcome) -> bool:
    m = outcome.measurement
    return m is not None and search.is_clearly_sufficient(m, plan.goal, plan.space)


class _Bench:
    """What a running sweep knows: its outcomes, and the images that turned out to be bad."""

    def __init__(
        self, plan: Plan, save: Save, on_event: Callable[[Event], None], known: Sequence[Outcome],
        measure: Measure, find_bad_images: FindBadImages, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._measure_candidate, self._find_bad_images, self._clock = measure, find_bad_images, clock
        self._began = clock()
        self._measured = list(known)
        self.candidates = [outcome for outcome in known if outcome.role != "ceiling"]
        self._ceilings = [outcome for outcome in known if outcome.is_ceiling]
        self._other_batches = {outcome.candidate.batch_size for outcome in known if outcome.other_batch}
        self._ceiling = self._ceilings[-1] if self._ceilings else None
        self._resumed = len(self.candidates)
        self._plan = plan
        self._conditions = plan.conditions
        self._save = save
        self._on_event = on_event
        self._checked: set[str] = set()
        self._speed: tuple[float, Speed | None] = (0.0, None)

    @property
    def seconds(self) -> float:
        """Time since the sweep began."""
        return self._clock() - self._began

    @property
    def so_far(self) -> SoFar:
        """What was measured."""
        candidates = [outcome for outcome in restate(self._measured) if outcome.role != "ceiling"]
        return SoFar(
            candidates=candidates, ceilings=self._ceilings, seconds=self.seconds, in_order=tuple(self._measured)
        )

    def unfinished(self) -> Outcome | None:
        """The last outcome of an interrupted sweep, where it was about to be repeated."""
        if not self._resumed or len(self.candidates) > self._resumed:
            return None
        last = self.candidates[-1]
        return last if drifted(self.candidates) and last.attempt < _ATTEMPTS else None

    def measure_ceiling(self) -> Iterator[Outcome]:
        """Before all else; a second time when the first was not steady, because everything is measured against it."""
        workload = self._ceilings_workload
        known = self._ceiling
        for attempt in range(known.attempt + 1 if known else 1, _ATTEMPTS + 1):
            if self._ceiling and self._ceiling.measurement and self._ceiling.measurement.steady:
                return
            if self._ceiling and self._ceiling.measurement and is_dear(self._plan, self._ceiling):
                return
            for outcome in self._measure(
                Proposal(candidate=search.baseline(self._plan.space), why="the ceiling"), "ceiling", attempt, workload
            ):
                yield outcome
                self._ceiling = outcome
                self._ceilings.append(outcome)
            failure = None if self._ceiling is None else self._ceiling.failure
            if failure is not None:
                measured = [outcome for outcome in self._ceilings if outcome.measurement is not None]
                if measured:  # the one before holds, though it was not steady
                    self._ceiling = measured[-1]
                    return
                raise explain_no_ceiling(self._plan, failure)

    def measure_ceilings_of_other_batches(self) -> Iterator[Outcome]:
        """With other batch sizes; one that does not fit on the device fails, and the sweep goes on."""
        own = search.baseline(self._plan.space)
        for size in dict.fromkeys(self._plan.other_batches):
            if size != own.batch_size and size not in self._other_batches:
                candidate = replace(own, batch_size=size)
                proposal = Proposal(candidate=candidate, why=f"the ceiling with batches of {size}")
                yield from self._measure(proposal, "ceiling", 1, self._ceilings_workload)

    def measure_ceiling_of_block(self, block: int) -> Iterator[Outcome]:
        """Again before each block, which is then stated against it: a device that gets warm lowers its clocks.

        Where it fails the one before holds.
        """
        if not needs_ceiling(self._plan, block, self.so_far):
            return
        for outcome in self._measure(propose_ceiling(self._plan, block), "ceiling", 1, self._ceilings_workload):
            yield outcome
            self._ceilings.append(outcome)
            if outcome.measurement is not None:
                self._ceiling = outcome

    def repeat_refuted_ceiling(self) -> Iterator[Outcome]:
        """Again where a candidate was faster than it by more than chance explains; the higher one then counts."""
        proposal = propose_repeated_ceiling(self._plan, self.so_far)
        if proposal is None:
            return
        for outcome in self._measure(proposal, "ceiling", 1, self._ceilings_workload):
            yield outcome
            self._ceilings.append(outcome)
        standing = [outcome for outcome in restate(self._measured) if outcome.is_ceiling and outcome.measurement]
        self._ceiling = standing[-1] if standing else self._ceiling

    @property
    def _ceilings_workload(self) -> Workload:
        workload = self._conditions.workload
        if workload.accelerator.kind != "emulated":
            return workload
        return replace(workload, seconds=min(workload.seconds, _EMULATED_CEILING_S))

    def measure_proposal(self, proposal: Proposal, attempt: int) -> Iterator[Outcome]:
        """What the search wants to know."""
        return self._measure(proposal, name_role(self._plan, proposal.candidate), attempt)

    def _measure(
        self, proposal: Proposal, role: str, attempt: int, workload: Workload | None = None
    ) -> Iterator[Outcome]:
        """One candidate, with every outcome saved before it is yielded: two where a bad image had to go first."""
        candidate = proposal.candidate
        outcome = self._measure_once(proposal, role, attempt, workload)
        yield outcome
        failure = outcome.failure
        if failure is None or not may_be_a_bad_image(failure):
            return
        # A decoder that crashes cannot be asked which image it was. The default one does not crash.
        default = self._plan.space.default_backend
        changed = self._replace_bad_images(default, candidate, role, attempt)
        if failure.kind == "bad_image" and candidate.backend != default:
            changed = self._replace_bad_images(candidate.backend, candidate, role, attempt) or changed
        if changed:
            yield self._measure_once(proposal, role, attempt, workload)

    def _measure_once(self, proposal: Proposal, role: str, attempt: int, workload: Workload | None) -> Outcome:
        seen = [*self._ceilings, *self.candidates]
        felt = expected_felt_frac(self.candidates, proposal.candidate)
        noise = run_noise((outcome.measurement for outcome in seen), repetitions(seen), felt)
        workload = workload or self._conditions.workload
        conditions = replace(
            self._conditions, workload=workload, device_noise=self._device_noise(workload),
            new_process=needs_new_process(self._plan, proposal, role, self.candidates),
            speed_before=self._present_speed(),
        )  # fmt: skip
        ceiling = None if role == "ceiling" or self._ceiling is None else self._ceiling.measurement
        predicted = None if role == "ceiling" else self._predict(proposal.candidate)
        outcome, recording = self._measure_candidate(
            proposal.candidate, role, conditions, attempt=attempt, ceiling=ceiling, run_noise=noise,
            question=question_for(self._plan, proposal.block, role, ceiling, noise, conditions.device_noise),
            on_live=self._teller(proposal.candidate, role, attempt, proposal.why),
        )  # fmt: skip
        self._speed = (self._clock(), recording.speed_after)
        outcome = replace(
            outcome,
            block=proposal.block,
            why=proposal.why,
            predicted=predicted,
            other_batch=self._has_other_batch(proposal.candidate),
        )
        self._save(outcome, recording)
        self._measured.append(outcome)
        if role != "ceiling":
            self.candidates.append(outcome)
        if recording.stopped is not None:  # only now, so that a measurement of seconds is not lost
            raise recording.stopped
        return outcome

    def _has_other_batch(self, candidate: Candidate) -> bool:
        """Whether it is the candidate of a ceiling with another batch size."""
        return candidate.batch_size != self._plan.space.batch_size

    def _predict(self, candidate: Candidate) -> Prediction | None:
        """What is expected of a candidate, from what was measured until now."""
        workload, space = self._conditions.workload, self._plan.space
        if workload.cache == "cold":
            return None  # what storage delivers is not known
        ranks = self._plan.script_ranks if self._plan.in_script else space.ranks
        return predict_candidate(
            candidate, self.candidates, cores=space.usable_cores, ranks=ranks,
            blocking=workload.accelerator.kind == "cpu",
        )  # fmt: skip

    def _present_speed(self) -> Speed | None:
        """The machine's speed, where the candidate before has read it a moment ago."""
        read_s, speed = self._speed
        return speed if self._clock() - read_s <= _SPEED_HOLDS_S else None

    def _device_noise(self, workload: Workload) -> float:
        """How much the accelerator itself scatters, by the ceilings so far that were steady."""
        steady = [outcome.measurement for outcome in self._ceilings if outcome.measurement]
        spec = workload.accelerator
        # An emulated device whose rate is drawn for each process scatters as a real one does.
        return device_noise([m for m in steady if m.steady], "cuda" if spec.scatter else spec.kind)

    def _replace_bad_images(self, backend: str, candidate: Candidate, role: str, attempt: int) -> bool:
        """Let a backend try every image, once in a sweep; whether the set has become another one."""
        if backend in self._checked or self._plan.in_script:
            return False
        self._checked.add(backend)
        asked = replace(candidate, backend=backend)
        most_s = math.inf if self._plan.budget_s is None else self._plan.budget_s - self.seconds
        bad = self._find_bad_images(
            asked, self._conditions, on_live=self._teller(candidate, role, attempt, _BAD_IMAGE), most_s=most_s
        )
        index_path = self._conditions.workload.index_path
        images = read_index(index_path)  # as the child has read it: others may have been replaced before
        files = {images.images[position].path for position in bad}
        most = math.inf if backend == self._plan.space.default_backend else max(1, len(images.images) * _FEW_BAD)
        if not 0 < len(files) <= most:
            return False  # so many that the library was built without their format: its candidates fail
        images = replace_images(images, bad)
        write_index(index_path, images)
        self._conditions = replace(self._conditions, paths=images.files)
        return True

    def _teller(self, candidate: Candidate, role: str, attempt: int, why: str) -> Callable[[Live], None]:
        other = self._has_other_batch(candidate)
        return lambda live: self._on_event(
            Event(candidate=candidate, role=role, attempt=attempt, why=why, live=live, other_batch=other)
        )
