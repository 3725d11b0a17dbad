"""The loop of a sweep: propose -> measure -> save -> yield. No torch, no printing.

Its only state is the list of outcomes, which the run folder holds as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from pipetune import search
from pipetune.datasets.index import read_index, replace_images, write_index
from pipetune.errors import PipetuneError, UsageError
from pipetune.measure import harness
from pipetune.measure.failures import may_be_a_bad_image
from pipetune.measure.harness import Live
from pipetune.measure.machine_speed import Speed
from pipetune.measure.phases import OVERTIME, Question
from pipetune.measure.recording import Recording
from pipetune.predicting.candidates import predict_candidate
from pipetune.records.prediction import Prediction
from pipetune.records.sweep import Candidate, Measurement, Outcome, Workload
from pipetune.search import Proposal
from pipetune.search.effort import is_thorough
from pipetune.search.pooled import repetitions
from pipetune.stats.noise import device_noise, run_noise
from pipetune.sweeping.drifted import drifted
from pipetune.sweeping.expected_time import expected_times_s
from pipetune.sweeping.lost_device import check_device
from pipetune.sweeping.observer import Event
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
        PipetuneError: the ceiling could not be measured; without it no share of it can be stated. Or the device was
            lost, and no further candidate can be measured.
    """
    bench = _Bench(
        plan, save, on_event, [outcome for outcome in known if outcome.measurement], measure, find_bad_images, clock
    )
    yield from bench.measure_ceiling()
    while True:
        again = bench.unfinished()
        if again is not None:
            proposal: Proposal | None = Proposal(candidate=again.candidate, why=again.why or "", block=again.block)
        else:
            proposal = bench.next_proposal()
        if proposal is None:
            return
        yield from bench.measure_ceiling_of_block(proposal.block)
        for attempt in range(again.attempt + 1 if again else 1, _ATTEMPTS + 1):
            yield from bench.measure_proposal(proposal, attempt)
            check_device(bench.candidates)
            if plan.in_script and bench.has_own_start(proposal):
                break  # too dear to be repeated
            if not drifted(bench.candidates) or not bench.has_time_for(proposal):
                break


class _Bench:
    """What a running sweep knows: its outcomes, and the images that turned out to be bad."""

    def __init__(
        self, plan: Plan, save: Save, on_event: Callable[[Event], None], known: Sequence[Outcome],
        measure: Measure, find_bad_images: FindBadImages, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._measure_candidate, self._find_bad_images, self._clock = measure, find_bad_images, clock
        self._began = clock()
        self.candidates = [outcome for outcome in known if outcome.role != "ceiling"]
        self._ceilings = [outcome for outcome in known if outcome.role == "ceiling"]
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
                kind = UsageError if failure.kind == "usage" else PipetuneError
                raise kind(
                    f"cannot measure what {workload.accelerator.name} takes at most: {failure.message}",
                    hint=failure.hint,
                )

    def measure_ceiling_of_block(self, block: int) -> Iterator[Outcome]:
        """Again before each block, which is then stated against it: a device that gets warm lowers its clocks.

        Where it fails the one before holds. An emulated device whose processes do not scatter is always the same.
        """
        if not self._needs_ceiling(block):
            return
        for outcome in self._measure(self._ceiling_of_block(block), "ceiling", 1, self._ceilings_workload):
            yield outcome
            self._ceilings.append(outcome)
            if outcome.measurement is not None:
                self._ceiling = outcome

    def _ceiling_of_block(self, block: int) -> Proposal:
        why = "the ceiling, beside the candidates of a block"
        return Proposal(candidate=search.baseline(self._plan.space), why=why, block=block)

    def _needs_ceiling(self, block: int) -> bool:
        """Whether the ceiling is measured again before a block's next candidate."""
        if not block or any(outcome.block == block for outcome in self._ceilings):
            return False
        begun = {outcome.block for outcome in self._ceilings if outcome.block}
        if self._plan.in_script and (begun or not self.has_own_start(self._ceiling_of_block(block))):
            return False  # once, in the running script: later it would take a start of its own
        accelerator = self._conditions.workload.accelerator
        return accelerator.kind != "emulated" or bool(accelerator.scatter)

    @property
    def _ceilings_workload(self) -> Workload:
        workload = self._conditions.workload
        if workload.accelerator.kind != "emulated":
            return workload
        return replace(workload, seconds=min(workload.seconds, _EMULATED_CEILING_S))

    def next_proposal(self) -> Proposal | None:
        """What the search asks for, where the budget has time for it; ``None``: the sweep ends."""
        plan = self._plan
        proposal = search.propose(plan.space, self.candidates, plan.goal, plan.seed, grid=plan.grid, blocks=plan.blocks)
        if proposal is None or self.has_time_for(proposal):
            return proposal
        # No gain can be stated without the untuned default, so it is measured even after the budget is spent.
        untuned = search.baseline(plan.space)
        if any(outcome.candidate == untuned for outcome in self.candidates):
            return None
        return Proposal(candidate=untuned, why=f"{search.untuned_name(plan.space)}, which gains are stated against")

    def has_time_for(self, proposal: Proposal) -> bool:
        """Whether measuring it would not overrun the budget, set-up and the ceiling beside its block included."""
        plan = self._plan
        if plan.budget_s is None:
            return True
        expected_s = self._expected_s(proposal, self._name_role(proposal))
        if self._needs_ceiling(proposal.block):
            expected_s += self._expected_s(self._ceiling_of_block(proposal.block), "ceiling")
        return self.seconds + expected_s <= plan.budget_s

    def _expected_s(self, proposal: Proposal, role: str) -> float:
        can_fork = self._plan.in_script or self._conditions.servers is not None
        forked = can_fork and not self._in_new_process(proposal, role)
        seen = [*self._ceilings, *self.candidates]
        return median(expected_times_s(seen, forked=forked, new_start_s=self._plan.new_start_s))

    def _name_role(self, proposal: Proposal) -> str:
        return "baseline" if proposal.candidate == search.baseline(self._plan.space) else "candidate"

    def measure_proposal(self, proposal: Proposal, attempt: int) -> Iterator[Outcome]:
        """What the search wants to know."""
        return self._measure(proposal, self._name_role(proposal), attempt)

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
        noise = run_noise((outcome.measurement for outcome in seen), repetitions(seen))
        workload = workload or self._conditions.workload
        conditions = replace(
            self._conditions, workload=workload, device_noise=self._device_noise(workload),
            new_process=self._in_new_process(proposal, role), speed_before=self._present_speed(),
        )  # fmt: skip
        ceiling = None if role == "ceiling" or self._ceiling is None else self._ceiling.measurement
        predicted = None if role == "ceiling" else self._predict(proposal.candidate)
        outcome, recording = self._measure_candidate(
            proposal.candidate, role, conditions, attempt=attempt, ceiling=ceiling, run_noise=noise,
            question=self._question(proposal, role, ceiling, noise, conditions.device_noise),
            on_live=self._teller(proposal.candidate, role, attempt, proposal.why),
        )  # fmt: skip
        self._speed = (self._clock(), recording.speed_after)
        outcome = replace(outcome, block=proposal.block, why=proposal.why, predicted=predicted)
        self._save(outcome, recording)
        if role != "ceiling":
            self.candidates.append(outcome)
        if recording.stopped is not None:  # only now, so that a measurement of seconds is not lost
            raise recording.stopped
        return outcome

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

    def has_own_start(self, proposal: Proposal) -> bool:
        """Whether a proposal begins as a training does: in a new process, or with a fresh start of the script."""
        plan = self._plan
        return search.has_own_start(plan.space, self.candidates, plan.goal, proposal.candidate, proposal.block)

    def _in_new_process(self, proposal: Proposal, role: str) -> bool:
        """Whether it gets a process of its own, where others may share one.

        What is decided is confirmed in new processes, which is how a training begins: the default, which may be found
        to suffice at once, and each candidate's first block. A script is such a process itself: it is started anew for
        its blocks.
        """
        if self._plan.in_script:
            return self.has_own_start(proposal) and role != "ceiling"
        return role == "baseline" or self.has_own_start(proposal)

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

    def _question(
        self, proposal: Proposal, role: str, ceiling: Measurement | None, noise: float, device_noise: float | None
    ) -> Question | None:
        """What the search asks of a candidate; in a thorough search what is compared closely is measured in full.

        A script's ceiling comes twice within a minute: of it nothing but a small scatter is asked.
        """
        goal, kind = self._plan.goal, self._conditions.workload.accelerator.kind
        compared = is_thorough(goal) and (proposal.block or role in ("baseline", "ceiling"))
        short = self._plan.in_script if role == "ceiling" else ceiling is not None
        if compared or self._plan.grid or goal.metric != "goodput" or not short:
            return None
        full = None if role == "ceiling" or ceiling is None else ceiling.samples_per_s
        return Question(
            levels=() if full is None else (goal.target * full,), run_noise=noise,
            device_noise=None if kind == "cpu" else device_noise,
            alone_samples_per_s=None if kind == "emulated" else full, full_samples_per_s=full,
            overtime=OVERTIME if self._conditions.timeout_s is None else 1.0,  # set for the default length
        )  # fmt: skip

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
        return lambda live: self._on_event(Event(candidate=candidate, role=role, attempt=attempt, why=why, live=live))
