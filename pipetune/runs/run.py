"""``Run``: one sweep, watch or observed loop as an object to ask for frames."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetune.diagnosis.candidate import counted_cores_of, diagnosis_of
from pipetune.diagnosis.causes import DATA_WAIT
from pipetune.errors import UsageError
from pipetune.records.observation import EMULATED
from pipetune.records.sweep import Outcome
from pipetune.records.watch import Stall, Verdict, Window
from pipetune.runs import frames
from pipetune.runs.stalls import stalls_of_steps
from pipetune.store.columns import TimelineColumns, columns_of, load_columns
from pipetune.store.read import timeline_name
from pipetune.store.watch_log import timeline_of

if TYPE_CHECKING:
    import pandas as pd

SWEEP, WATCH, OBSERVE, EXPLAIN, WHATIF = "sweep", "watch", "observe", "explain", "whatif"
BATCH_SIZE = "batch-size"
_STALL_COLUMNS = ("t_start_ns", "t_end_ns", "lost_s", "cause")


class DamagedRunWarning(UserWarning):
    """Something of a run was left out because it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Run:
    """What one sweep, watch or observed loop measured. Made by :func:`pipetune.load`.

    A *candidate* is named by its timeline, e.g. ``opencv-w2-p4-b64``; ``recommended`` and ``default`` name those of a
    sweep. The timelines of a watch are its ranks: ``main``, or ``rank0`` and on.
    """

    path: Path
    kind: str
    """``sweep``, ``watch``, ``observe``, ``explain``, ``whatif`` or ``batch-size``."""
    info: dict[str, Any]
    """What was asked, and of which machine (``run.json``)."""
    result: dict[str, Any]
    """What came out (``result.json``); empty when the run did not come to its end."""
    candidates: tuple[str, ...]
    """Names of the timelines."""
    problems: tuple[str, ...]
    """One sentence each: what was damaged, missing or unknown and therefore left out."""
    outcomes: tuple[Outcome, ...] = ()
    """Of a sweep, in the order of measurement, the ceiling among them; of ``explain`` those of all parts, of
    ``whatif`` those of its checks."""
    windows: tuple[Window, ...] = ()
    """Of a watch, in the order of time."""
    ended_stalls: tuple[Stall, ...] = ()
    """Of a watch: those that ended while it ran."""
    verdicts: tuple[Verdict, ...] = ()
    """Of a watch: one per rank over the whole watch, the worst first; of one that was killed those of its last window.
    """
    _newest: dict[str, TimelineColumns] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        # In a notebook it is shown whenever it is the last thing in a cell: all that it holds would be pages.
        about = f", recommended {self.recommended}" if self.recommended else ""
        about += f", {len(self.problems)} problems (see .problems)" if self.problems else ""
        return f"<pipetune.Run: {self.kind} {self.path}, timelines {', '.join(self.candidates) or 'none'}{about}>"

    @property
    def recommended(self) -> str | None:
        """The candidate that the sweep recommends; ``None``: there is none, or it did not come to its end."""
        same = [
            timeline_name(outcome)
            for outcome in self.outcomes
            if outcome.candidate.key == self.recommended_key and outcome.role != "ceiling" and outcome.measurement
        ]
        return same[-1] if same else None

    @property
    def recommended_key(self) -> str | None:
        """Its key, which all its attempts have in common."""
        row = self.result.get("recommended")
        return str(row["key"]) if isinstance(row, dict) and "key" in row else None

    @property
    def default(self) -> str | None:
        """The candidate that is PyTorch's default."""
        found = [outcome for outcome in self.outcomes if outcome.role == "baseline"]
        found = [outcome for outcome in found if outcome.measurement is not None] or found
        return timeline_name(found[-1]) if found else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a sweep had to say before it began, e.g. that an emulated accelerator takes a GPU's place."""
        notes = self.info.get("notes")
        return tuple(map(str, notes)) if isinstance(notes, list) else ()

    @property
    def usable_cores(self) -> float:
        """Cores of the machine after affinity and quota; 1 where that is not known."""
        for host in (self.info.get("host"), self.result.get("host")):
            usable = host.get("cores_usable") if isinstance(host, dict) else None
            if isinstance(usable, (int, float)) and usable > 0:
                return float(usable)
        return 1.0

    @property
    def counted_cores(self) -> float | None:
        """Cores of the machine whose load was measured; ``None``: not known."""
        hosts = [host for host in (self.info.get("host"), self.result.get("host")) if isinstance(host, dict)]
        return next((counted for host in hosts if (counted := counted_cores_of(host)) is not None), None)

    @property
    def accelerator(self) -> str:
        """What worked on the batches, as figures name it: whatever is emulated says so."""
        workload = self.info.get("workload")
        spec = workload.get("accelerator") if isinstance(workload, dict) else None
        emulated = isinstance(spec, dict) and spec.get("kind") == "emulated"
        return "EMULATED accelerator" if emulated or self._watched_emulated else "accelerator"

    @property
    def _watched_emulated(self) -> bool:
        return any(verdict.source == EMULATED for window in self.windows for verdict in window.verdicts)

    def frame(self) -> pd.DataFrame:
        """One row per measurement, repeats and the ceiling included; of a watch one per window and rank; of batch sizes
        one each."""
        frames.require_pandas()
        if self.kind == WATCH:
            return frames.window_frame(self.windows)
        if self.kind == OBSERVE:
            return frames.loop_frame(self.steps(), self.readings(), self.stalls())
        if self.kind == BATCH_SIZE:
            return frames.point_frame(self.result)
        frame = frames.outcome_frame(
            self.outcomes, usable_cores=self.usable_cores, counted_cores=self.counted_cores,
            recommended=self.recommended_key,
        )  # fmt: skip
        if self.kind in (EXPLAIN, WHATIF):
            frame.insert(0, "part", [outcome.part for outcome in self.outcomes])
        return frame

    def ranks(self) -> pd.DataFrame:
        """Of a sweep with several ranks: one row per measurement and rank, with its rate and what it waited for."""
        frames.require_pandas()
        return frames.rank_frame(self.outcomes)

    def hosts(self) -> pd.DataFrame:
        """Of a sweep on several hosts: one row per measurement and host, with its rate and what it read."""
        frames.require_pandas()
        return frames.host_frame(self.outcomes)

    def readings(self, candidate: str | None = None) -> pd.DataFrame:
        """What the sampler saw of the machine, the processes and the GPU: one row per reading.

        Args:
            candidate: a timeline's name, ``recommended`` or ``default``; unless given the recommended one, or the only
                one, or the first rank.

        Raises:
            UsageError: there is no such timeline.
        """
        frames.require_pandas()
        name = self.timeline(candidate)
        return frames.reading_frame(self.columns(name).readings, self.zero_ns(name))

    def steps(self, candidate: str | None = None) -> pd.DataFrame:
        """The training steps: one row each. A watch sees none. Takes and raises what :meth:`readings` does."""
        frames.require_pandas()
        name = self.timeline(candidate)
        return frames.step_frame(self.columns(name).steps, self.zero_ns(name), self._timed(name))

    def stalls(self, candidate: str | None = None) -> pd.DataFrame:
        """The times in which the accelerator was idle: one row each, with its cause.

        Of a sweep's candidate they are derived from its timed steps, and ``lost_s`` sums up to its idle time. Takes and
        raises what :meth:`readings` does.
        """
        frames.require_pandas()
        name = self.timeline(candidate)
        return frames.stall_frame(self.stall_columns(name), self.zero_ns(name))

    def stall_columns(self, name: str) -> dict[str, Any]:
        """The same with instants: ``t_start_ns``, ``t_end_ns``, ``lost_s``, ``cause`` and on."""
        if self.kind == WATCH:
            names = self.candidates
            own = [stall for stall in self.ended_stalls if timeline_of(stall.rank, stall.pid, names) == name]
            return {
                key: [getattr(stall, key) for stall in own] for key in ("t_start_ns", "t_end_ns", "lost_s", "cause")
            }
        steps, outcome = self.columns(name).steps, self.outcome(name)
        diagnosis = None if outcome is None else diagnosis_of(outcome, self.usable_cores, self.counted_cores)
        cause = DATA_WAIT if diagnosis is None else diagnosis.cause
        return stalls_of_steps(steps, cause, self._timed(name))

    def outcome(self, candidate: str | None = None) -> Outcome | None:
        """The outcome behind a timeline; ``None``: it has none, or this is not a sweep."""
        name = self.timeline(candidate)
        # A failure that was tried again has the same name, and the timeline is that of the newest.
        return next((outcome for outcome in reversed(self.outcomes) if timeline_name(outcome) == name), None)

    def timeline(self, candidate: str | None = None) -> str:
        """The name that is meant.

        Raises:
            UsageError: there is no such timeline.
        """
        aliases = {"recommended": self.recommended, "default": self.default}
        first = self.candidates[0] if self.candidates else None
        name = aliases.get(candidate, candidate) if candidate else self.recommended or self.default or first
        if name not in self.candidates:
            wanted = f"{candidate} " if candidate else ""
            names = ", ".join(self.candidates) or "none"
            raise UsageError(f"{self.path} has no timeline {wanted}".rstrip(), hint=f"there are: {names}")
        assert name is not None
        return name

    def zero_ns(self, candidate: str) -> int:
        """The instant (ns of ``time.monotonic_ns``) that a timeline's seconds count from: its first step or reading."""
        columns = self.columns(candidate)
        firsts = [values[0] for values in (columns.steps["t_start_ns"], columns.readings["t_ns"]) if len(values)]
        if not firsts:  # a log has no readings: its first line knows the time on this clock
            firsts = [
                self.info.get("monotonic_ns") or min((stall.t_start_ns for stall in self.ended_stalls), default=0)
            ]
        return int(min(firsts))

    def seconds(self, candidate: str | None = None) -> float:
        """The time (s) that the stalls are a part of: the timed phase, or from the first reading to the last."""
        name = self.timeline(candidate)
        outcome = self.outcome(name)
        if outcome is not None and outcome.measurement is not None:
            return outcome.measurement.timed_s
        if self.kind == OBSERVE:
            return float(self.frame()["seconds"].iloc[0])
        readings = self.columns(name).readings
        t_ns = readings["t_ns"]
        if not len(t_ns):
            return sum(window.seconds for window in self.windows)
        return float(t_ns[-1] - t_ns[0]) / 1e9 + float(readings["interval_s"][0])

    def keep(self, name: str, columns: TimelineColumns) -> None:
        """Use these columns instead of a stored timeline."""
        self._newest.clear()
        self._newest[name] = columns

    def columns(self, name: str) -> TimelineColumns:
        """A timeline as it is stored."""
        found = self._newest.get(name)
        if found is None:
            found = load_columns(self.path, name) if self.path.is_dir() else columns_of()
            for problem in found.problems:
                warnings.warn(f"{self.path}: {problem}", DamagedRunWarning, stacklevel=4)
            # One is kept: who asks for its readings asks for its steps next, and a million rows are large.
            self.keep(name, found)
        return found

    def _timed(self, name: str) -> slice:
        """The measured steps: whole windows after the warm-up. All steps where there is no measurement."""
        outcome = self.outcome(name)
        if outcome is None or outcome.measurement is None:
            return slice(int(self.info.get("warmup_steps") or 0), None)
        first = outcome.measurement.warmup_batches
        return slice(first, first + outcome.measurement.steps)
