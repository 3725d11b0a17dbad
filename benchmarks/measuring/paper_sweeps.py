"""Sweeps on paper: the truth is known, and all else is pipetune's own: phases, summary, noise, pooling. No real clock.

Each has a ceiling, a dozen candidates that are looked at once, and three blocks in which two of them, the ceiling and
in the first one the default are measured again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipetune import search
from pipetune.measure.machine_speed import Speed
from pipetune.measure.phases import PhaseProgress, Question, plan_phases, run_phases
from pipetune.measure.recording import Recording
from pipetune.measure.summary import summarise
from pipetune.records.sweep import THOROUGH, Candidate, Measurement, Outcome, StepTime
from pipetune.search.effort import EFFORTS
from pipetune.search.pooled import repetitions
from pipetune.stats.noise import device_noise, run_noise

BATCH, SECONDS, WARM_UP_S, WORKERS, LOOKS = 8, 4.0, 8.0, 2, 12
#: Seconds that a batch takes in the mean, and samples/s that this is.
STEP_S = 0.05
TRUTH = BATCH / STEP_S
#: So often the best candidates are compared side by side at most.
BLOCKS = EFFORTS[THOROUGH].blocks
#: Standard deviation of rates per that of the fixed decode loop's readings, and the standard deviation of its logarithm
#: among machines (see :mod:`pipetune.stats.noise`).
RATE_PER_SPEED, RATE_PER_SPEED_SD = 2.5, 0.36


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How measurements scatter. Every candidate delivers :data:`TRUTH` in the mean."""

    name: str
    kind: str = "emulated"
    run_sd: float = 0.0
    """Relative standard deviation between runs of a loader, or of what it takes from the accelerator's steps."""
    step_variation: float = 0.05
    """Standard deviation per mean of a step's duration."""
    device_sd: float = 0.0
    """Relative standard deviation of the accelerator's pace between processes."""
    idle_frac: float = 0.5
    """Share of the time in which the accelerator waits for the loader."""
    slowed: float = 0.0
    """Share by which the loader makes the accelerator's steps longer."""
    known: bool = False
    """The scatter between runs is known and need not be estimated: intervals are as narrow as they may be."""
    early: bool = False
    """Whether looks end when they know whether a candidate is above or below its own true rate, which none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """One interval, as a sweep states it."""

    stage: str
    """``look``, or ``blocks 1`` to ``blocks 3``: pooled over so many."""
    covered: bool
    half: float
    """Half-width per rate."""
    timed_s: float
    ended_early: bool


def sweep(world: World, draw: random.Random) -> Iterator[Stated]:
    """What one sweep states of its candidates, in the order in which it does."""
    per_speed = math.exp(draw.gauss(math.log(RATE_PER_SPEED), RATE_PER_SPEED_SD))
    outcomes: list[Outcome] = []

    def measured(workers: int, role: str, block: int, *, in_full: bool) -> Outcome:
        candidate = Candidate(backend="opencv", num_workers=workers, prefetch_depth=2, batch_size=BATCH)
        found = measure(world, role, outcomes, draw, per_speed, in_full=in_full)
        outcomes.append(Outcome(
            candidate=candidate, role=role, attempt=1, started_unix_s=0, wall_s=0, measurement=found, block=block
        ))  # fmt: skip
        return outcomes[-1]

    measured(0, "ceiling", 0, in_full=True)
    # The default is met at a random place; two others are taken to the blocks whatever chance made of them.
    order = draw.sample(range(LOOKS), LOOKS)
    default, *compared = order[:3]
    for number in range(LOOKS):
        role = "baseline" if number == default else "candidate"
        outcome = measured(1 + number, role, 0, in_full=role == "baseline")
        if role == "candidate" and outcome.measurement is not None:
            yield stated("look", outcome.measurement)
    for block in range(1, BLOCKS + 1):
        measured(0, "ceiling", block, in_full=True)
        members = draw.sample(compared + ([default] if block == 1 else []), 2 + (block == 1))
        for number in members:
            measured(1 + number, "baseline" if number == default else "candidate", block, in_full=True)
        pooled = search.latest(outcomes)
        for number in members:
            key = Candidate(backend="opencv", num_workers=1 + number, prefetch_depth=2, batch_size=BATCH).key
            found = pooled[key].measurement
            assert found is not None
            yield stated(f"blocks {block}", found)


def stated(stage: str, m: Measurement) -> Stated:
    """Whether the interval holds the truth, and how wide it is."""
    return Stated(
        stage=stage, covered=m.ci95[0] <= TRUTH <= m.ci95[1], half=(m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s,
        timed_s=m.timed_s, ended_early=m.ended_early,
    )  # fmt: skip


def measure(
    world: World, role: str, outcomes: Sequence[Outcome], draw: random.Random, per_speed: float, *, in_full: bool
) -> Measurement:
    """One measurement, as the harness makes it of a child's steps, with what is known of the noise by now."""
    seen = [outcome.measurement for outcome in outcomes]
    ceilings = [o.measurement for o in outcomes if o.role == "ceiling" and o.measurement is not None]
    of_runs = world.run_sd if world.known else run_noise(seen, repetitions(list(outcomes)))
    of_device = device_noise(ceilings, world.kind)
    alone = ceilings[-1].samples_per_s if ceilings and world.kind != "emulated" else None
    question = None
    if world.early and not in_full:
        question = Question(
            levels=(TRUTH,), run_noise=of_runs, device_noise=of_device, alone_samples_per_s=alone
        )  # fmt: skip
    if role == "ceiling":
        quiet = replace(world, run_sd=0.0, idle_frac=0.0, step_variation=min(world.step_variation, 0.02))
        stream = steps(quiet, draw, STEP_S / (1 + world.slowed))
    else:
        stream = steps(world, draw, STEP_S)
    progress, phases = PhaseProgress(), plan_phases(WORKERS, 2, SECONDS, WARM_UP_S)
    recording = Recording(first_batch={"open_s": 0.0, "time_to_first_batch_s": 0.0})
    for phase, step in run_phases(stream, phases, progress, question):
        (recording.timed if phase == "timed" else recording.warmup).append(step)
    speed = 200 * math.exp(draw.gauss(0, world.run_sd / per_speed))
    recording.speed_after = Speed(speed, speed)
    recording.result = {
        "warmup_batches": progress.warmup_batches, "steady": True, "window_batches": progress.window_batches,
        "ended_early": progress.answered, "pss_bytes": None, "gpu_mem_bytes": None, "speed_before": [speed, speed],
    }  # fmt: skip
    return summarise(
        recording, accelerator_kind=world.kind, ceiling=None if role == "ceiling" or not ceilings else ceilings[-1],
        run_noise=of_runs, device_noise=of_device,
    )  # fmt: skip


def steps(world: World, draw: random.Random, mean_s: float) -> Iterator[StepTime]:
    """The steps of one process without end: gamma-distributed durations around a mean of its own."""
    mean_s *= math.exp(draw.gauss(0, math.hypot(world.run_sd, world.device_sd)))
    shape = 1 / world.step_variation**2
    now_ns = 10**9
    while True:
        duration = mean_s * draw.gammavariate(shape, 1 / shape)
        end_ns = now_ns + round(duration * 1e9)
        yield StepTime(
            t_start_ns=now_ns, data_wait_s=0.0, h2d_s=None, compute_s=duration * (1 - world.idle_frac),
            idle_s=duration * world.idle_frac, t_end_ns=end_ns, samples=BATCH,
        )  # fmt: skip
        now_ns = end_ns
