"""Plays a search on a world: a function from candidates to what measuring them gives. No process, no real clock.

A :class:`Paper` world draws its measurements from a model (``worlds.py``), a :class:`Replay` from a grid that
was really measured. Both know how long each measurement takes, so that a search's time can be compared with the grid's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median, pstdev
from typing import Any, Protocol

from benchmarks.search.worlds import IMPORT_S, START_S, WARM_UP_S, Machine, memory_of, true_rate
from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import THOROUGH, Candidate, Failure, Goal, Measurement, Outcome, from_dict
from pipetune.search.effort import DEFAULT_EFFORT, EFFORTS, is_thorough
from pipetune.stats.intervals import Z95
from pipetune.stats.noise import LOADER_BOUND, device_noise, noise_of_run
from pipetune.stats.rates import EARLY_FACTOR
from pipetune.sweeping.drifted import drifted

#: Timed phase of a candidate (s): by default, and the shortest and longest where the search asks a question.
SECONDS, MIN_S, MAX_S = 4.0, 1.5, 12.0
GOAL = Goal(target=0.9, metric="goodput", effort=DEFAULT_EFFORT)
#: A loader that reaches this share of the accelerator's rate is not the limit.
FED = 0.97
#: Within this share of the target both answers, reached or not, count as right.
CLOSE = 0.02


class World(Protocol):
    """Something to play a search on, with a clock of its own."""

    space: Space
    seed: int
    clock_s: float
    measured: int
    grid_s: float
    """Time that measuring everything takes."""
    cores: int

    def everything(self) -> list[Candidate]:
        """The grid, with the baseline."""
        ...

    def measure(self, candidate: Candidate, seconds: float | None = None, *, new_process: bool = False) -> Outcome:
        """As the harness does it: ``seconds`` of timed phase, or as long as the question whether it suffices takes."""
        ...

    def truth(self, candidate: Candidate) -> tuple[float, float] | None:
        """Goodput and cores; ``None``: it fails."""
        ...

    def resolution(self, one: str, other: str) -> float:
        """The share by which the cores of two candidates must differ for the difference to be certain (95 %)."""
        ...


class Paper:
    """See :class:`World`."""

    def __init__(self, machine: Machine, space: Space, seed: int) -> None:
        self.machine, self.space, self.seed, self.cores = machine, space, seed, machine.cores
        self.clock_s, self.measured = 0.0, 0
        self._draw = random.Random(f"world {seed}")
        self.grid_s = len(self.everything()) * (START_S + WARM_UP_S + SECONDS)
        # pipetune knows the noise from an estimate only.
        self._known_noise = machine.noise * math.exp(self._draw.gauss(0, 0.25))

    def everything(self) -> list[Candidate]:
        """See :class:`World`."""
        return list(dict.fromkeys((search.baseline(self.space), *self.space.grid())))

    def speed(self) -> float:
        """Of the machine, now."""
        since, speed = self.machine.drift
        return speed if self.clock_s > since * self.grid_s else 1.0

    def truth(self, candidate: Candidate) -> tuple[float, float] | None:
        """See :class:`World`; at the speed that the machine has now."""
        if candidate.backend in self.machine.broken:
            return None
        rate, cores = true_rate(self.machine, candidate, self.speed())
        return rate / self.machine.ceiling, cores

    def resolution(self, one: str, other: str) -> float:
        """See :class:`World`: the truth is known."""
        return 0.0

    def measure(self, candidate: Candidate, seconds: float | None = None, *, new_process: bool = False) -> Outcome:
        """See :class:`World`."""
        self.measured += 1
        machine, speed = self.machine, self.speed()
        start_s = START_S + IMPORT_S * new_process
        if candidate.backend in machine.broken:
            self.clock_s += start_s
            return _failed(candidate)
        rate, cores = true_rate(machine, candidate, speed)
        noise = self._draw.gauss(0, machine.noise)
        if self._draw.random() < machine.slow_moments:
            noise -= self._draw.uniform(0.1, 0.4)
        # A loader that waits for the accelerator does not scatter: only what it lacks does.
        bound = min(1.0, (1 - rate / machine.ceiling) / LOADER_BOUND)
        between = noise_of_run(self._known_noise, device_noise([], "emulated"), 1 - rate / machine.ceiling)
        seen = min(machine.ceiling, rate * math.exp(noise * bound)) * math.exp(self._draw.gauss(0, 0.002))
        timed_s = seconds if seconds is not None else MIN_S
        while True:
            within = machine.within * max(0.1, bound) / math.sqrt(timed_s)
            half = Z95 * math.hypot(between, within if seconds is not None else EARLY_FACTOR * within)
            decided = abs(seen / machine.ceiling / GOAL.target - 1) > half
            if seconds is not None or decided or within <= between / 2 or timed_s >= MAX_S:
                break
            timed_s = min(MAX_S, 2 * timed_s)
        seen *= math.exp(self._draw.gauss(0, within))
        wall_s = start_s + WARM_UP_S + timed_s
        self.clock_s += wall_s
        machine_speed = 100 * speed * math.exp(self._draw.gauss(0, machine.noise / 2.5))
        # A loader that is the limit keeps its workers busy, however long an image takes.
        cores *= 1 + self._draw.gauss(0, math.hypot(0.01, machine.cpu_noise * (1 - bound)))
        clock = (speed if machine.drift_is_clock else 1.0) * math.exp(self._draw.gauss(0, machine.noise / 5))
        return _measured(
            candidate, wall_s, rate=seen, half=half, ceiling=machine.ceiling, cores=cores,
            memory=memory_of(machine, candidate), timed_s=timed_s, machine_speed=machine_speed,
            machine_cpu_speed=100 * clock,
        )  # fmt: skip


class Replay:
    """See :class:`World`: a grid that was measured.

    A measurement is the median of a candidate's repeats, off by as much as one repeat of some candidate of the grid was
    (rate, cores and the machine's speed together): one whose limit was the same, its loader or the accelerator.
    """

    def __init__(self, grid: Mapping[str, Any], seed: int) -> None:
        self.space, self.seed, self.cores = space_of(grid), seed, grid["cores"]
        self.clock_s, self.measured = 0.0, 0
        self._rows = {row["key"]: row for row in grid["candidates"]}
        self._ceiling = grid["ceiling_samples_per_s"]
        self._draw = random.Random(f"replay {seed}")
        # It was measured in new processes; today it would be in forks.
        self.grid_s = sum(row["wall_s"] - IMPORT_S for row in self._rows.values())
        self._off = {fed: self._deviations(fed) for fed in (True, False)}

    def _deviations(self, fed: bool) -> list[tuple[float, float, float]]:
        """Rate and cores of each repeat as shares of its candidate's medians, and the machine's speed meanwhile."""
        found = []
        for row in self._rows.values():
            rates, cores = row["samples_per_s"], row["cores_used"]
            if len(rates) < 2 or fed is not self._is_fed(row):
                continue
            wider = math.sqrt(2) if len(rates) == 2 else 1.0  # the middle of two lies nearer to them than the truth
            for rate, used, speed in zip(rates, cores, row["machine_speed"], strict=True):
                found.append((1 + wider * (rate / median(rates) - 1), 1 + wider * (used / median(cores) - 1), speed))
        return found or [(1.0, 1.0, 100.0)]

    def _is_fed(self, row: Mapping[str, Any]) -> bool:
        return bool(median(row["samples_per_s"]) > FED * self._ceiling)

    def everything(self) -> list[Candidate]:
        """See :class:`World`."""
        return [from_dict(Candidate, row["candidate"]) for row in self._rows.values()]

    def truth(self, candidate: Candidate) -> tuple[float, float] | None:
        """See :class:`World`: the median of the repeats."""
        row = self._rows[candidate.key]
        if not row["samples_per_s"]:
            return None
        return median(row["samples_per_s"]) / self._ceiling, median(row["cores_used"])

    def resolution(self, one: str, other: str) -> float:
        """See :class:`World`: from how repeats scatter, and how many there are."""
        scatter = pstdev(cores for _, cores, _ in self._off[True])
        return Z95 * scatter * math.hypot(*(len(self._rows[key]["cores_used"]) ** -0.5 for key in (one, other)))

    def measure(self, candidate: Candidate, seconds: float | None = None, *, new_process: bool = False) -> Outcome:
        """See :class:`World`. A question takes the shortest time: the rates stay what they were."""
        self.measured += 1
        row = self._rows[candidate.key]
        saved_s = 0.0 if seconds is not None or not row["samples_per_s"] else max(0.0, row["timed_s"] - MIN_S)
        wall_s = row["wall_s"] - saved_s - IMPORT_S * (not new_process)
        self.clock_s += wall_s
        if not row["samples_per_s"]:
            return _failed(candidate)
        rate_off, cores_off, speed = self._draw.choice(self._off[self._is_fed(row)])
        return _measured(
            candidate, wall_s, rate=min(self._ceiling, median(row["samples_per_s"]) * rate_off), half=row["half"],
            ceiling=self._ceiling, cores=median(row["cores_used"]) * cores_off, memory=row["pss_bytes"],
            timed_s=row["timed_s"] - saved_s, machine_speed=speed,
        )  # fmt: skip


def space_of(grid: Mapping[str, Any]) -> Space:
    """The candidates of a measured grid."""
    space = from_dict(Space, grid["space"])
    settings = tuple((name, tuple(values)) for name, values in space.settings)
    return replace(
        space, settings=settings, excluded=frozenset(), accelerator_decodes=(), usable_cores=float(grid["cores"])
    )


def _failed(candidate: Candidate) -> Outcome:
    failure = Failure(kind="crashed", phase="open", message="it always does")
    return Outcome(
        candidate=candidate, role="candidate", attempt=1, started_unix_s=0, wall_s=START_S, failure=failure
    )  # fmt: skip


def _measured(
    candidate: Candidate, wall_s: float, *, rate: float, half: float, ceiling: float, cores: float, memory: float,
    timed_s: float, machine_speed: float, machine_cpu_speed: float | None = None,
) -> Outcome:  # fmt: skip
    goodput = rate / ceiling
    idle = max(0.0, 1 - goodput)
    measurement = Measurement(
        samples_per_s=rate, ci95=(rate * (1 - half), rate * (1 + half)), goodput=goodput,
        goodput_ci95=(goodput * (1 - half), goodput * (1 + half)), gpu_util_pct=100 * goodput, sm_active_pct=None,
        gpu_mem_bytes=None, data_wait_frac=idle, accelerator_idle_frac=idle, h2d_frac=None, cpu_busy_pct=None,
        cpu_idle_pct=None, iowait_pct=None, psi_cpu_some_pct=None, psi_io_some_pct=None, cores_used=cores,
        cpu_s_per_1000_samples=1000 * cores / rate, run_delay_frac=None, read_bytes_per_sample=None,
        minor_faults_per_sample=None, context_switches_per_sample=None, pss_bytes=int(memory), open_s=0.1,
        time_to_first_batch_s=1.0, steps=100, samples=6400, timed_s=timed_s, windows=12, warmup_batches=10, steady=True,
        machine_speed_before=machine_speed, machine_speed_after=machine_speed, cache_resident_frac=1.0,
        sampler_readings=40, sampler_core_frac=0.005, machine_cpu_speed=machine_cpu_speed,
    )  # fmt: skip
    return Outcome(
        candidate=candidate, role="candidate", attempt=1, started_unix_s=0, wall_s=wall_s, measurement=measurement
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of one search."""

    regret: float
    """Share of the reachable goodput (at most the target) that the recommendation does not reach."""
    time_share: float
    """Of the time that the whole grid takes."""
    called_right: bool | None
    """Whether it states correctly that the target can be reached; either is right where it is close. ``None``: what was
    measured does not decide it."""
    no_more_cores: bool | None
    """It suffices with no more cores than the cheapest sufficient candidate, within 0.15 cores, 5 % or the truth's own
    uncertainty; ``None`` where none suffices, or it is not decided whether this one does."""
    near_cores: bool | None
    """The same within what the effort looks for."""
    candidates: int


#: ``policy(world)`` measures what it wants; returns its choice, and whether it states that the target is reached.
Policy = Callable[[World], tuple[Candidate, bool]]


def judge(world: World, policy: Policy, effort: str = THOROUGH) -> Played:
    """Play one search and compare its choice with the truth.

    Args:
        effort: how many cores more than the fewest count as near.
    """
    choice, reached = policy(world)
    truth = {c.key: found for c in world.everything() if (found := world.truth(c)) is not None}
    best = max(goodput for goodput, _ in truth.values())
    wanted = min(GOAL.target, best)
    got, cores = truth.get(choice.key, (0.0, math.inf))
    enough = {key: cores for key, (goodput, cores) in truth.items() if goodput >= GOAL.target}
    frugal = min(enough, key=lambda key: enough[key], default=None)
    no_more = near = None
    if frugal is not None:
        tolerance = max(0.15, enough[frugal] * max(0.05, world.resolution(choice.key, frugal)))
        suffices = got >= GOAL.target * (1 - CLOSE)
        no_more = suffices and cores <= enough[frugal] + tolerance
        looked_for = EFFORTS[effort]
        tolerance = max(tolerance, looked_for.least_cores, looked_for.least_share * cores)
        near = suffices and cores <= enough[frugal] + tolerance
    return Played(
        regret=max(0.0, 1 - got / wanted), time_share=world.clock_s / world.grid_s,
        called_right=reached == (best >= GOAL.target) or abs(best / GOAL.target - 1) < CLOSE,
        no_more_cores=no_more, near_cores=near, candidates=world.measured,
    )  # fmt: skip


def ours(world: World) -> tuple[Candidate, bool]:
    """pipetune's search."""
    return _search(world, GOAL)


def thorough(world: World) -> tuple[Candidate, bool]:
    """pipetune's search with ``--effort thorough``."""
    return _search(world, replace(GOAL, effort=THOROUGH))


def _search(world: World, goal: Goal) -> tuple[Candidate, bool]:
    outcomes: list[Outcome] = []
    while (proposal := search.propose(world.space, outcomes, goal, world.seed)) is not None:
        untuned = proposal.candidate == search.baseline(world.space)
        for attempt in (1, 2):  # what was measured while the machine changed speed is repeated once
            outcome = world.measure(
                proposal.candidate, SECONDS if is_thorough(goal) and (proposal.block or untuned) else None,
                new_process=untuned or proposal.block == 1,
            )  # fmt: skip
            role = "baseline" if untuned else "candidate"
            outcomes.append(replace(outcome, block=proposal.block, role=role, attempt=attempt))
            if not drifted(outcomes):
                break
        assert len(outcomes) < 500, "it does not end"
    return choice_of(world, outcomes)


def choice_of(world: World, outcomes: list[Outcome]) -> tuple[Candidate, bool]:
    """What pipetune would recommend from these outcomes."""
    recommendation = search.recommend(outcomes, GOAL, world.space)
    outcome = None if recommendation is None else recommendation.choice.outcome
    if outcome is None or outcome.measurement is None:
        return search.baseline(world.space), False
    return outcome.candidate, search.meets(outcome.measurement, GOAL)
