"""What a person reads of a script that was tuned: what to set, how to train with it, what it touched. Pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace

from pipetune.candidates.allocators import lines_before
from pipetune.candidates.settings import SIMD, python_start
from pipetune.protection.words import describe_written
from pipetune.records.redact import HIDDEN
from pipetune.records.script import ScriptLoader, ScriptOption, ScriptSummary, SettingOrigin
from pipetune.records.sweep import Candidate, Outcome
from pipetune.sourcetext.command_options import set_option
from pipetune.stats.intervals import ratio_interval
from pipetune.sweeping.result import SweepResult
from pipetune.sweeping.worker_limits import why_not_kept
from pipetune.units import format_duration

#: Workers that start anew for each epoch are spoken of from this share of the time on.
_LEAST_RESTART_FRAC = 0.02
#: When workers that live on train as those do that start anew. Whether the script changes the data set is watched while
#: it is measured (:meth:`pipetune.hook.source.Source.begin_epoch`).
_KEPT_CONDITION = (
    "workers that live on keep their copy of the data set, and worker_init_fn runs once: the training is the same as "
    "long as the script changes nothing of the data set between epochs (no change was seen while it was measured)"
)
#: What stands in a stored command in place of something else -> what to do about it.
_TO_WRITE = {
    HIDDEN: f"({HIDDEN} stands for a value that looks like a secret: write it as before)",
    "{scratch}": "({scratch} was a temporary folder: write one of your own)",
}
#: Arguments of torch's ``DataLoader`` that can be set by hand, in the order of its documentation.
_ARGUMENTS = ("num_workers", "pin_memory", "multiprocessing_context", "prefetch_factor", "in_order")


def changes_of(loader: ScriptLoader, candidate: Candidate) -> dict[str, tuple[object, object]]:
    """Argument of ``DataLoader`` -> its value in the script, and with the candidate; those that differ."""
    workers = candidate.num_workers
    new: dict[str, object] = {
        "num_workers": workers, "prefetch_factor": candidate.prefetch_depth if workers else None,
        "pin_memory": candidate.pin_memory, "in_order": candidate.in_order,
    }  # fmt: skip
    says_how = loader.settings.get("num_workers") and loader.settings.get("start_method")
    if workers and (says_how or candidate.start_method != python_start(loader.python)):
        new["multiprocessing_context"] = candidate.start_method
    if not workers:
        del new["in_order"]
    if candidate.keep_workers:
        new["persistent_workers"] = True
    if not workers and loader.settings.get("persistent_workers"):
        new["persistent_workers"] = False
    old = {**loader.settings, "multiprocessing_context": loader.settings.get("start_method")}
    differ = {name: (old.get(name), new[name]) for name in (*_ARGUMENTS, "persistent_workers")
              if name in new and old.get(name) != new[name] and name not in loader.fixed}  # fmt: skip
    if differ.get("prefetch_factor") == (None, 2):
        del differ["prefetch_factor"]  # torch's own, as soon as there are workers
    return differ


def _needs_more(candidate: Candidate) -> bool:
    """Whether arguments of ``DataLoader`` are not all that changes."""
    kept = (candidate.worker_cores, candidate.opencv_threads, candidate.decoder, candidate.allocator)
    return kept != ("inherited", None, "own", "default")


def setting_line(summary: ScriptSummary, candidate: Candidate) -> str:
    """``'train.py:42: num_workers 4 -> 7 (written as args.workers, the option --workers), prefetch_factor 2 -> 4'``.

    A value that is written elsewhere than in the loader's call is named by the place where it is.
    """
    loader = summary.loader
    assert loader is not None
    where = _short(loader.where, summary.cwd)
    places: dict[str, list[str]] = {}
    for name, (old, new) in changes_of(loader, candidate).items():
        shown = loader.names.get(name, name)
        origin = summary.origins.get(name)
        if origin is not None:
            place = f"{_short(origin.file, summary.cwd)}:{origin.line}"
            places.setdefault(place, []).append(
                f"{origin.name} {old} -> {new}{_origin_note(origin, shown, old, where, place)}"
            )
            continue
        written = loader.written.get(name)
        # Where the option suffices, the command with it is a line of its own.
        has_command = name != "num_workers" or command_with_option(summary, candidate) is not None
        option = "" if has_command else _option_note(summary.option)
        as_written = f" (written as {written}{option})" if written is not None and written != repr(old) else ""
        places.setdefault(where, []).append(f"{shown} {old} -> {new}{as_written}")
    more = _other_changes(candidate)
    if more:
        places.setdefault(where, []).extend(more)
    listed = "; ".join(
        f"{place}: {', '.join(parts)}{_library_note(place, loader, summary.cwd)}" for place, parts in places.items()
    )
    return listed or f"{where}: nothing to change"


def _option_note(option: ScriptOption | None) -> str:
    """What to append to the expression that the option sets: ``', the option --workers'``."""
    return "" if option is None else f", the {'override' if option.override else 'option'} {option.words[0]}"


def _library_note(place: str, loader: ScriptLoader, cwd: str) -> str:
    """From where the script calls an installed library, where the place is in one."""
    if not _is_installed(place):
        return ""
    caller = next((call for call in loader.calls if not _is_installed(call.file)), None)
    if caller is None:
        return " (in an installed library)"
    return f" (in an installed library, which {_short(caller.file, cwd)}:{caller.span[0]} calls)"


def _is_installed(file: str) -> bool:
    return "/site-packages/" in file or "/dist-packages/" in file


def _origin_note(origin: SettingOrigin, name: str, old: object, where: str, place: str) -> str:
    """What to know of a value that is written elsewhere: the argument, the expression, and who takes it, too."""
    parts = [] if place == where and name == origin.name else [f"{name} of the loader at {where}"]
    if origin.text.startswith("**"):
        parts.append(f"comes in {origin.text}")
    elif origin.text != repr(old):
        parts.append(f"written as {origin.text}")
    if origin.also:
        lines = ", ".join(map(str, origin.also))
        parts.append(f"the call in line {lines} takes it, too" if len(origin.also) == 1 else
                     f"the calls in lines {lines} take it, too")  # fmt: skip
    return f" ({'; '.join(parts)})" if parts else ""


def _other_changes(candidate: Candidate) -> list[str]:
    """What a candidate changes besides arguments of the loader, in words."""
    parts = []
    if candidate.worker_cores != "inherited":
        parts.append("workers on all cores that the process began with (os.sched_setaffinity in worker_init_fn)")
    if candidate.opencv_threads is not None:
        parts.append(f"cv2.setNumThreads({candidate.opencv_threads}) in worker_init_fn")
    if candidate.decoder == SIMD:
        parts.append("Pillow-SIMD in place of Pillow (with pipetune run, or installed in the script's environment)")
    elif candidate.decoder != "own":
        parts.append("only the crops decoded, by jpeg-roi (with pipetune run only)")
    return [*parts, *(f"in the shell: {line}" for line in lines_before(candidate.allocator))]


def _short(where: str | None, cwd: str) -> str:
    if where is None:
        return "the loader"
    return os.path.relpath(where, cwd) if where.startswith(cwd.rstrip("/") + "/") else where


def command_with_option(summary: ScriptSummary, candidate: Candidate) -> str | None:
    """The command with the script's own option, where the number of workers is all that changes and it has one."""
    loader = summary.loader
    if loader is None or summary.option is None or _needs_more(candidate):
        return None
    if set(changes_of(loader, candidate)) != {"num_workers"}:
        return None
    words = set_option(summary.option, summary.command, candidate.num_workers)
    return None if words is None else shlex.join(words)


def training_command(summary: ScriptSummary, run_folder: str) -> str:
    """The command that trains with what was found, nothing edited."""
    return f"pipetune run --tuned {shlex.quote(run_folder)} -- {shlex.join(summary.command)}"


def to_do(result: SweepResult, run_folder: str) -> list[str]:
    """Lines that say how to train with the recommendation; empty: the script stays as it is."""
    summary, recommended = result.script, result.recommended
    if summary is None or summary.loader is None or recommended is None or recommended.role == "baseline":
        return []
    lines = [f"Set in {setting_line(summary, recommended.candidate)}"]
    by_option = command_with_option(summary, recommended.candidate)
    if by_option is not None:
        lines.append(f"or start it as:          {by_option}")
    if summary.loader.identity is not None:
        lines.append(f"or leave it as it is and: {training_command(summary, run_folder)}")
    if len(lines) > 1:
        lines += [text for mark, text in _TO_WRITE.items() if any(mark in word for word in summary.command)]
    return lines


def _restart_note(summary: ScriptSummary, chosen: Outcome | None, outcomes: Sequence[Outcome]) -> str | None:
    """That each epoch begins with a wait for new workers, where that is a noticeable share of an epoch, and what came
    of workers that live on."""
    m = None if chosen is None else chosen.measurement
    if chosen is None or m is None or summary.loader is None or chosen.candidate.keep_workers:
        return None
    samples = summary.loader.samples_between_starts(chosen.candidate.num_workers)
    if samples is None:
        return None
    counted, first_s = summary.epoch_starts_counted, m.epoch_start_s or m.time_to_first_batch_s
    epoch_s = samples / m.samples_per_s + (0.0 if counted else first_s)
    if first_s / epoch_s < _LEAST_RESTART_FRAC:
        return None
    return (
        f"an epoch takes {format_duration(epoch_s)}, of which {format_duration(first_s)} go to workers that end and "
        f"start anew ({100 * first_s / epoch_s:.0f} % of the time, which the rates here "
        f"{'include' if counted else 'leave out'}); {_kept_instead(summary.loader, chosen, outcomes)}"
    )


def _kept_instead(loader: ScriptLoader, chosen: Outcome, outcomes: Sequence[Outcome]) -> str:
    """What workers that live on came to, or why that was not measured."""
    candidate = replace(chosen.candidate, keep_workers=True)
    kept = next((one.measurement for one in reversed(outcomes) if one.candidate == candidate and one.measurement), None)
    if kept is None:
        is_refused = any(one.candidate.keep_workers and one.failure is not None for one in outcomes)
        came_of_it = "failed, as said above" if is_refused else "was not measured"
        return why_not_kept(loader) or f"persistent_workers=True, which keeps them, {came_of_it}"
    assert chosen.measurement is not None
    low, high = ratio_interval(kept.samples_per_s, kept.ci95, chosen.measurement)
    gain = kept.samples_per_s / chosen.measurement.samples_per_s
    return f"with persistent_workers=True, which keeps them, it was {gain:.2f} times as fast ({low:.2f} to {high:.2f})"


def script_notes(summary: ScriptSummary, chosen: Outcome | None = None, outcomes: Sequence[Outcome] = ()) -> list[str]:
    """What to know of a script that was measured: its starts, how its epochs begin, and what it has touched.

    Args:
        chosen: the recommendation, or the script as it is.
        outcomes: all that was measured.
    """
    found = list(summary.notes)
    restart = _restart_note(summary, chosen, outcomes)
    if restart is not None:
        found.append(restart)
    if chosen is not None and chosen.candidate.keep_workers:
        found.append(_KEPT_CONDITION)
    if summary.setup_s is not None:
        times = "once" if summary.starts == 1 else f"{summary.starts} times"
        found.append(f"the script was started {times}; it takes {format_duration(summary.setup_s)} until it trains")
    if summary.written is not None:
        found += describe_written(summary.written, summary.cwd)
    return found
