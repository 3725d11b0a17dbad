"""Measures the candidates of a script, one after the other in one start of it, or each in a start of its own.

In one start ("relay"), the loader that trains gets other settings in the middle of an epoch: set-up is paid once, and
the accelerator stays warm. What decides, and what lives in the process, is measured in a fresh start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipetune.candidates import allocators
from pipetune.candidates.settings import SIMD, needs_own_process
from pipetune.errors import FailsAgainError
from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure import failures
from pipetune.measure.conditions import Conditions, Live
from pipetune.measure.phases import Question
from pipetune.measure.recording import Recording
from pipetune.measure.script.ended import SEVERAL_TRAININGS
from pipetune.measure.script.epoch_start import EpochLengths, starts_to_time, with_epoch_start
from pipetune.measure.script.follow import follow_measurement
from pipetune.measure.script.joined import CHECKPOINT, SCRIPT_ENDED, TOO_FEW, measure_over_starts
from pipetune.measure.script.ready import SETUP_S, ScriptError, describe_wait, wait_until_ready
from pipetune.measure.script.remarks import remarks
from pipetune.measure.script.session import ScriptSession
from pipetune.measure.script.start_settings import find_changed_settings, make_profile, why_not_applied
from pipetune.measure.summary import TooShort, summarise
from pipetune.processes.signals import defer_signals
from pipetune.protection.contract import Protection
from pipetune.records.script import ScriptLoader
from pipetune.records.set_up import SetUp
from pipetune.records.sweep import Candidate, Failure, Measurement, Outcome, to_dict
from pipetune.stats.ceilings import limit_goodput

#: Kinds of failures of a script that has ended by itself, and how many ends in a row are enough.
_ENDED, _MOST_ENDED = (SCRIPT_ENDED, CHECKPOINT, TOO_FEW), 3


class ScriptBench:
    """Everything that is measured in one script.

    Args:
        command: as the user wrote it.
        log: takes its output.
        setup_s: longest time from a start to the first training step (s).
        protection: keeps the user's files as they are, see :mod:`pipetune.protection`.
        memory: share of the device's memory that a step may take: the ceiling is that of batches of the candidate's
            size, and the memory is measured; ``None``: it is that of the script's own batches.
    """

    def __init__(
        self, command: Sequence[str], log: Path, *, setup_s: float = SETUP_S, protection: Protection | None = None,
        memory: float | None = None,
        on_stage: Callable[[str, int, int | None], None] = lambda text, done, total: None,
    ) -> None:  # fmt: skip
        self._command, self._log, self._setup_s = tuple(command), log, setup_s
        self._on_stage, self._protection, self._memory = on_stage, protection, memory
        self._relay: ScriptSession | None = None
        self._stop: Callable[[], bool] = bool
        """Whether pipetune was asked to stop during the present measurement."""
        self._gpus = HeldGpus()
        self._own: Candidate | None = None
        self._rate: float | None = None
        """That the script was measured at first (samples/s)."""
        self._epochs = EpochLengths()
        self.loader: ScriptLoader | None = None
        """What it trains on, once it was started."""
        self._ended_in_a_row = 0
        self._has_ended = False
        """The script has ended during the last measurement."""
        self._measured_in_start = 0
        self._is_short = False
        """The script ends before a measurement does: it is measured over several starts."""
        self.starts = 0
        self.setup_seconds: list[float] = []
        self.notes: list[str] = []

    def __enter__(self) -> ScriptBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._gpus.close()

    def close(self) -> None:
        """End the script, wherever it is; it may be started again."""
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def begin(self) -> ScriptLoader:
        """Start the script and wait until it trains.

        Raises:
            ScriptError: it does not come to that.
            KeyboardInterrupt, Interrupted: pipetune was asked to stop; the script has ended by then.
        """
        with defer_signals() as deferred:
            self._stop = lambda: bool(deferred)
            self._relay = self._start({}, None)
        assert self.loader is not None
        return self.loader

    def _is_asked_to_stop(self) -> bool:
        """During whichever measurement: a start outlives the one that it was made for."""
        return self._stop()

    def settle_on(self, own: Candidate) -> None:
        """Say which candidate the script itself is."""
        self._own = own

    def _start(self, variables: Mapping[str, str], profile: Mapping[str, Any] | None) -> ScriptSession:
        session = ScriptSession(
            self._command, variables, self._log, profile, self._is_asked_to_stop, protection=self._protection
        )
        self.starts += 1
        self._measured_in_start = 0
        try:
            loader = wait_until_ready(
                session, self._setup_s, lambda seconds: self._on_stage(describe_wait(session, seconds), 0, None)
            )
        except BaseException:
            session.close()
            raise
        self.setup_seconds.append(time.monotonic() - session.began_s)
        self.loader = self.loader or loader
        for complaint in session.complaints:
            self._note(complaint)
        return session

    def settings_of(self, candidate: Candidate) -> dict[str, Any]:
        """What the candidate changes of the script's loader, under torch's names; ``{}``: it is the script's own."""
        assert self._own is not None
        return find_changed_settings(candidate, self._own, self.loader)

    def measure(
        self, candidate: Candidate, role: str, conditions: Conditions, *, attempt: int = 1,
        ceiling: Measurement | None = None, run_noise: float = 0.0, question: Question | None = None,
        on_live: Callable[[Live], None] = lambda live: None,
    ) -> tuple[Outcome, Recording]:  # fmt: skip
        """Measure one candidate once, as :func:`pipetune.measure.harness.measure` does.

        Raises:
            FailsAgainError: the script ends each time before anything is measured, or has too few batches.
        """
        started, began = time.time(), time.monotonic()
        recording = Recording()
        recording.notes.append(
            "the page cache was left as it is, because the files that your script reads are not known"
        )
        fresh = conditions.new_process or (role != "ceiling" and self._lives_in_process(candidate))
        with defer_signals() as deferred:
            self._stop = lambda: bool(deferred)
            try:
                failure = self._measure(candidate, role, conditions, recording, question, on_live, fresh=fresh)
            except ScriptError as error:
                self._has_ended = True
                failure = Failure(kind="script_ended", phase="spawn", message=error.message, hint=error.hint)
            except (OSError, ValueError) as error:
                failure = Failure(kind="spawn", phase="spawn", message=f"cannot start the script: {error}")
        if failure is not None and failure.kind == SEVERAL_TRAININGS:
            raise ScriptError(failure.message, hint=failure.hint)
        if failure is not None and failure.kind == TOO_FEW and role == "ceiling":
            raise ScriptError(failure.message)
        measurement = None
        self._ended_in_a_row = self._ended_in_a_row + 1 if self._is_end(failure) else 0
        if failure is not None and self._ended_in_a_row >= _MOST_ENDED:
            raise FailsAgainError(
                f"the script ended {_MOST_ENDED} times in a row while it was measured: {failure.message}",
                hint=failure.hint or f"see its output in {self._log}",
            )
        if failure is None:
            try:
                measurement = summarise(
                    recording, accelerator_kind=conditions.workload.accelerator.kind, ceiling=ceiling,
                    run_noise=run_noise, device_noise=conditions.device_noise,
                )  # fmt: skip
                if role != "ceiling" and self.loader is not None:
                    starts = recording.first_batch.get("starts", ())
                    whole = bool(recording.result.get("whole_epochs"))
                    starts = recording.result.get("epoch_starts", ()) if whole else starts
                    if not recording.result.get("single_epochs"):  # their workers start once
                        measurement = with_epoch_start(measurement, self.loader, candidate, starts, whole=whole)
                    self._rate = self._rate or measurement.samples_per_s
                measurement = limit_goodput(measurement)
            except ArithmeticError as error:  # steps without length, say
                failure = failures.garbled("timed", f"its steps cannot be right: {error}", "")
            except TooShort as error:
                failure = Failure(kind="too_short", phase="timed", message=str(error), hint="measure longer: --seconds")
        outcome = Outcome(
            candidate=candidate, role=role, attempt=attempt, started_unix_s=started, wall_s=time.monotonic() - began,
            measurement=measurement, failure=failure, forked=not (fresh or self._is_short),
        )  # fmt: skip
        return outcome, recording

    def _measure(
        self, candidate: Candidate, role: str, conditions: Conditions, recording: Recording, question: Question | None,
        on_live: Callable[[Live], None], *, fresh: bool,
    ) -> Failure | None:  # fmt: skip
        self._has_ended = False
        settings = self.settings_of(candidate) if role != "ceiling" else {}
        starts_before = len(self.setup_seconds)
        request = self._request(candidate, role, settings, conditions, question)
        notes = list(recording.notes)
        failure: Failure | None = None
        while not self._is_short:
            attempt = Recording(notes=list(notes))
            failure = self._measure_once(candidate, request, conditions, attempt, on_live, fresh=fresh)
            recording.take_over(attempt)
            if failure is None or failure.kind not in (SCRIPT_ENDED, CHECKPOINT):
                break
            # One that has ended after others were measured in it is started again as it was.
            self._is_short = not self._measured_in_start
            self._measured_in_start = 0
        if self._is_short:
            failure, joined = self._measure_short(candidate, request, conditions, notes, on_live)
            recording.take_over(joined)
        if set_ups_s := self.setup_seconds[starts_before:]:
            recording.hello["set_up"] = to_dict(SetUp(start_s=sum(set_ups_s)))
        return failure

    def _measure_short(
        self, candidate: Candidate, request: dict[str, Any], conditions: Conditions, notes: list[str],
        on_live: Callable[[Live], None],
    ) -> tuple[Failure | None, Recording]:  # fmt: skip
        """Measure in several starts of a script that ends too soon, each from its loader's first batch on."""

        def measure_start() -> tuple[Failure | None, Recording]:
            start = Recording(notes=list(notes))
            failure = self._measure_once(candidate, request, conditions, start, on_live, fresh=True, from_start=True)
            return failure, start

        epoch_batches = None if self.loader is None else self.loader.batches
        return measure_over_starts(measure_start, request["role"], epoch_batches, request["seconds"])

    def _measure_once(
        self, candidate: Candidate, request: dict[str, Any], conditions: Conditions, recording: Recording,
        on_live: Callable[[Live], None], *, fresh: bool, from_start: bool = False,
    ) -> Failure | None:  # fmt: skip
        if fresh:
            self.close()  # two trainings at a time would share the accelerator and its memory
            on_live(Live(phase="spawn"))
            settings, simd = request["settings"], candidate.decoder == SIMD
            request = {**request, "settings": {}}  # they are applied when the loader is made
            profile = self.profile_of(settings, simd=simd, request=request if from_start else None)
            session = self._start(allocators.environment_of(candidate.allocator, os.environ), profile)
            failure = why_not_applied(settings, self.loader, session, simd=simd)
            if failure is not None:
                session.close()
                return failure
        elif self._relay is None:
            on_live(Live(phase="spawn"))
            session = self._relay = self._start({}, None)
        else:
            session = self._relay
        try:
            failure = self._follow(session, candidate, request, conditions, recording, on_live)
        except BaseException:
            session.close()
            self._relay = None
            raise
        ranks = self.loader.ranks if self.loader is not None else 1
        self._has_ended = session.process_ended or session.lost is not None or session.unguarded
        ended = fresh or self._has_ended
        if ended or (failure is not None and (ranks > 1 or self._memory or not session.told_failure)):
            session.close()
            if session is self._relay:
                self._relay = None
        return failure

    def _lives_in_process(self, candidate: Candidate) -> bool:
        """Whether a script has to be started anew for the candidate."""
        rebuilt = self.loader is not None and not self.loader.switchable and candidate != self._own
        return rebuilt or needs_own_process(candidate)

    def profile_of(
        self, settings: Mapping[str, Any], *, simd: bool = False, request: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """The settings as the hook applies them at construction; ``None``: there are none.

        Args:
            simd: Pillow-SIMD is to take the place of Pillow.
            request: is measured from the loader's first batch on; ``None``: what to measure is asked for.

        Raises:
            ScriptError: the loader cannot be recognised in another start.
        """
        return make_profile(self.loader, settings, simd=simd, request=request)

    def _is_end(self, failure: Failure | None) -> bool:
        """Whether a failure is that of a script that has ended."""
        return failure is not None and (self._has_ended or failure.kind in _ENDED)

    def _follow(
        self, session: ScriptSession, candidate: Candidate, request: Mapping[str, Any], conditions: Conditions,
        recording: Recording, on_live: Callable[[Live], None],
    ) -> Failure | None:  # fmt: skip
        recording.hello = {"versions": self._versions()}
        failure = follow_measurement(
            session, request, conditions, recording, gpu_uuid=None if self.loader is None else self.loader.gpu_uuid,
            gpus=self._gpus, setup_s=self._setup_s, on_live=on_live,
        )  # fmt: skip
        if failure is None or failure.kind in _ENDED:
            self._epochs.learn(request, recording.result)
        if failure is None:
            self._learn(candidate, request, recording.result)
        return failure

    def _request(
        self, candidate: Candidate, role: str, settings: Mapping[str, Any], conditions: Conditions,
        question: Question | None,
    ) -> dict[str, Any]:  # fmt: skip
        """What a script is asked for."""
        workload, loader = conditions.workload, self.loader
        return {
            "role": role, "settings": dict(settings), "num_workers": candidate.num_workers,
            "prefetch_depth": candidate.prefetch_depth, "seconds": workload.seconds,
            "warmup_limit_s": workload.warmup_limit_s, "question": None if question is None else to_dict(question),
            "starts": starts_to_time(loader, candidate, self._rate),
            "own_workers": (self._own or candidate).num_workers, **self._epochs.describe(candidate.num_workers),
            "batch_size": candidate.batch_size if self._memory else None, "memory": self._memory,
            "memory_limit_bytes": workload.gpu_memory_limit_bytes,
            "own_batch_size": None if self._own is None else self._own.batch_size,
            "device": "cpu" if loader is None else loader.device, "ranks": 1 if loader is None else loader.ranks,
        }  # fmt: skip

    def _learn(self, candidate: Candidate, request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Remember what a measurement told besides its rate."""
        self._measured_in_start += 1
        undivided = self.loader is not None and self.loader.undivided
        for text in remarks(result, request["role"], candidate, undivided=undivided):
            self._note(text)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _versions(self) -> dict[str, str]:
        loader = self.loader
        if loader is None:
            return {}
        versions = {"python": loader.python, "torch": loader.torch, "backend": "your script's own"}
        return versions | ({} if loader.device_name is None else {"gpu": loader.device_name})
