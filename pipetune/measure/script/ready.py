"""Waits for a script to train, and says in one line why it did not come to that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from pipetune.errors import PipetuneError
from pipetune.measure.failures import NO_MAIN_GUARD
from pipetune.measure.script.ended import describe_exit, find_cause
from pipetune.measure.script.last_error import shorten_path
from pipetune.measure.script.session import ScriptSession
from pipetune.measure.script.untrained import describe_untrained
from pipetune.processes.supervise import descendants
from pipetune.records.convert import from_dict
from pipetune.records.script import ScriptLoader

#: Time after which a command is given up whose Python has not said a word, or which goes on elsewhere (s).
HELLO_S = 60.0
#: Commands behind which the environment is another one.
_ELSEWHERE = frozenset({
    "apptainer", "docker", "enroot", "kubectl", "nerdctl", "podman", "singularity", "srun", "ssh", "sudo",
})  # fmt: skip
#: Longest time from a script's start to its first training step (s).
SETUP_S = 1800.0
#: What else serves where the hook does not get in.
_OTHERWISE = "pipetune watch -- COMMAND needs no way in, pipetune.observe a line in the script, --loader a function"
#: Libraries that load without torch's DataLoader, by a part of the names of files that a process has mapped.
_OTHER_LOADERS = {
    "nvidia/dali": "DALI", "ffcv": "FFCV", "/grain/": "Grain", "tensorflow": "tf.data", "/spdl/": "SPDL",
}  # fmt: skip


class ScriptError(PipetuneError):
    """The script did not come to training."""


def wait_until_ready(session: ScriptSession, setup_s: float, on_seconds: Callable[[float], None]) -> ScriptLoader:
    """Wait until every rank trains and waits for a request; returns what it trains on.

    Args:
        setup_s: longest time for that (s).
        on_seconds: is called about every second with the time so far.

    Raises:
        ScriptError: it ended, or came to no training.
        KeyboardInterrupt: pipetune was asked to stop: the caller's deferred signals raise it.
    """
    shown = speechless = 0
    while True:
        reason = session.wait(
            lambda: session.all_ready or bool(session.too_old or session.refused or session.loaderless), 1.0,
            lambda peer, message: session.early.append((peer, message)),
        )  # fmt: skip
        if session.too_old is not None:
            raise ScriptError(
                f"the script runs under Python {session.too_old}, and 3.11 is the oldest that can be tuned",
                hint=_OTHERWISE,
            )
        if session.refused is not None:
            raise ScriptError(session.refused)
        if session.all_ready:
            return _loader_of(session)
        if session.loaderless is not None:
            raise _trains_without_loader(session, session.loaderless)
        if reason == "stopped":
            raise ScriptError("stopped while the script was starting")
        seconds = shown = shown + 1
        on_seconds(float(seconds))
        if reason == "ended":
            raise _ended(session)
        if reason == "lost":
            raise _lost_rank(session)
        speechless = speechless + 1 if not session.peers and _should_speak(session) else 0
        if speechless >= HELLO_S:
            raise ScriptError(f"{_no_way_in(session)}", hint=_OTHERWISE)
        if seconds >= setup_s:
            raise ScriptError(
                f"the script had not begun to train after {seconds} s: {_came_to(session)}", hint=_OTHERWISE
            )


def describe_wait(session: ScriptSession, seconds: float) -> str:
    """What pipetune waits for: ``starting the script: 4 s``."""
    stage = "the script takes batches, and does not train yet" if session.reached("iterated") else "starting the script"
    return f"{stage}: {seconds:.0f} s"


def _loader_of(session: ScriptSession) -> ScriptLoader:
    ready: dict[str, Any] = session.ready[0].ready or {}
    names = {field.name for field in fields(ScriptLoader)}
    known = {**ready, "python": session.ready[0].hello.get("python", "")}
    return from_dict(ScriptLoader, {name: value for name, value in known.items() if name in names})


def _trains_without_loader(session: ScriptSession, known: Mapping[str, Any]) -> ScriptError:
    """The script steps its optimizer, and takes its batches from no loader."""
    here = os.getcwd()
    if known.get("function") and known.get("file"):
        batches = f"its batches come from {known['function']} at {shorten_path(known['file'], here)}:{known['line']}"
    elif known.get("loop"):
        batches = f"the loop that steps its optimizer is at {shorten_path(known['loop'], here)}"
    else:
        batches = "where its batches come from was not seen"
    unused = f" (it made {_list_loaders(session)})" if session.loaders_made else ""
    return ScriptError(
        f"the script trains without a DataLoader{unused}; {batches}{_other_loader(session)}", hint=_OTHERWISE
    )


def _ended(session: ScriptSession) -> ScriptError:
    """The command is over, and trained nothing that was seen."""
    if session.error is not None:
        return ScriptError(
            session.error, hint="write it as the shell would start it: pipetune sweep -- python train.py"
        )
    code, cause = session.exit_code, find_cause(session)
    hint = f"its output is in {session.log}"
    if code and cause.kind == NO_MAIN_GUARD:
        return ScriptError(cause.words or "", hint=cause.hint)
    if code:
        came_to = "" if cause.raised else f" ({_came_to(session)})"
        words = f": {cause.words}" if cause.words else ""
        hint = hint if cause.hint is None else f"{cause.hint}; {hint}"
        return ScriptError(f"the script {describe_exit(code)} before it trained{came_to}{words}", hint=hint)
    if session.untrained is not None:
        message, remedy = describe_untrained(session.untrained, os.getcwd())
        return ScriptError(f"{message}{_other_loader(session)}", hint=remedy)
    if session.checkpoint is not None:
        return ScriptError(
            f"the script was ended when it was about to write {session.checkpoint}, before it had trained long enough",
            hint="give it more batches per epoch, or fewer checkpoints",
        )
    hint = f"start it as it trains; {hint}" if session.loaders_made else _OTHERWISE
    return ScriptError(f"the script ended before anything could be measured: {_came_to(session)}", hint=hint)


def _lost_rank(session: ScriptSession) -> ScriptError:
    """A rank that trained has ended, and the command goes on: its other ranks wait."""
    cause = find_cause(session)
    words = "" if cause.words is None or not cause.raised else f": {cause.words}"
    hint = "" if cause.hint is None else f"{cause.hint}; "
    return ScriptError(
        f"rank {session.lost} of the script had ended before all of them trained{words}",
        hint=f"{hint}its output is in {session.log}",
    )


def _should_speak(session: ScriptSession) -> bool:
    """Whether a process of ours could have been heard of: Python runs, or what takes the command elsewhere.

    Before that a shell may work for long: unpack the data, say.
    """
    pids = [] if session.pid is None else [session.pid, *descendants(session.pid)]
    names = {os.path.basename(words[0]) for pid in pids if (words := _words(pid))}
    return any(name.startswith("python") or name in _ELSEWHERE for name in names)


def _no_way_in(session: ScriptSession) -> str:
    pids = [] if session.pid is None else [session.pid, *descendants(session.pid)]
    torch = any("libtorch" in text for text in map(_maps, pids))
    flags = sorted({flag for pid in pids for flag in _closing_flags(pid)})
    because = f"its Python was started with {' '.join(flags)}" if flags else (
        "its environment does not reach Python (env -i, sudo, a container, another host), or sets PYTHONPATH anew"
    )  # fmt: skip
    return f"the hook did not get into the script: {because}" + ("" if torch else "; no process has loaded torch")


def _came_to(session: ScriptSession) -> str:
    """How far the script came, in words."""
    if not session.peers:
        return "no Python process took up the hook (python -I, -E or -S, env -i, a container or another interpreter)"
    if not session.reached("torch"):
        return "it imported no torch DataLoader" + _other_loader(session)
    if not session.loaders_made:
        return "it made no DataLoader" + _other_loader(session)
    made = f"it made {_list_loaders(session)}"
    if not session.reached("iterated"):
        return f"{made}, and took no batch from any" + _other_loader(session)
    return f"{made} and took batches, but no optimizer stepped after three of them" + _other_loader(session)


def _list_loaders(session: ScriptSession) -> str:
    here = os.getcwd()
    return ", ".join(shorten_path(loader, here) for loader in dict.fromkeys(session.loaders_made))


def _other_loader(session: ScriptSession) -> str:
    pids = [] if session.pid is None else [session.pid, *descendants(session.pid)]
    texts = [_maps(pid) for pid in pids]
    found = [
        name
        for part, name in _OTHER_LOADERS.items()
        if name not in session.libraries and any(part in text for text in texts)
    ]
    return f"; it loads with {' and '.join(found)}, which is out of reach" if found else ""


def _maps(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _closing_flags(pid: int) -> Iterable[str]:
    """Options of a Python process that keep the environment or ``site`` out."""
    words = _words(pid)
    if not words or "python" not in os.path.basename(words[0]):
        return ()
    return closing_flags(words[1:])


def _words(pid: int) -> list[str]:
    """The command line of a process; empty: it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace").split("\0")
    except OSError:
        return []


def closing_flags(words: Sequence[str]) -> list[str]:
    """Of the options of a Python process, those that keep the environment or ``site`` out."""
    found = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-" or word.startswith("--"):
            break
        if word in ("-c", "-m"):
            break
        if word in ("-W", "-X"):
            next(rest, None)
        elif not word.startswith(("-W", "-X")) and set(word[1:]) & set("IES"):
            found.append(word)
    return found


def not_applied(settings: Mapping[str, Any], loader: ScriptLoader | None, ready: Mapping[str, Any]) -> str | None:
    """What a loader has that was to be made with these settings, where it has not; ``None``: it has them."""
    has = ready.get("settings") or {}
    for name in ("num_workers", "prefetch_factor"):
        fixed = loader is not None and name in loader.fixed
        if name in settings and name in has and not fixed and has[name] != settings[name]:
            return f"{name}={has[name]} instead of {settings[name]}"
    return None
