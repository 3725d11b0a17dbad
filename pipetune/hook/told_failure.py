"""What is told of an error of a candidate in the script's process: its line, its traceback, how a worker has ended."""

from __future__ import annotations

import contextlib
import traceback
from typing import Any

from pipetune.hook.built import BuiltSource
from pipetune.hook.channel import Channel
from pipetune.hook.source import Source
from pipetune.hook.unpicklable import find_unpicklable, is_pickling_error

#: The end of a traceback that is sent (characters), and the time that a worker which has just died may take to be
#: known as such (s).
_TRACEBACK_LENGTH, _EXIT_S = 16_000, 0.2


def describe_failure(error: Exception, source: Source | BuiltSource) -> dict[str, Any]:
    """The fields of a message ``failure`` besides its phase.

    Args:
        source: whose batch was asked for.
    """
    lines = str(error).strip().splitlines() or [""]
    # Of an error in a worker, the last line of its traceback; of CUDA, not its advice to search the web.
    message = lines[0] if lines[0].startswith("CUDA error") else lines[-1]
    if is_pickling_error(error) and (part := find_unpicklable(source.loader)) is not None:
        message = f"workers cannot start: {part}, which spawn cannot pickle"
    text = "".join(traceback.format_exception(error))
    return {
        "error": type(error).__name__,
        "message": message,
        "traceback": text[-_TRACEBACK_LENGTH:],
        "worker_signal": _signal_of_worker(error, source.inner),
    }


def tell_of_lost_worker(channel: Channel, error: Exception, iterator: Any) -> None:
    """Tell of the signal that has ended a worker, where the script itself gets the error; its output does not say it.

    Args:
        iterator: of the script's loader, which has raised the error.

    Raises:
        ChannelClosedError: pipetune has ended.
    """
    number = _signal_of_worker(error, iterator)
    if number is not None:
        channel.send("lost_worker", signal=number)


def _signal_of_worker(error: Exception, iterator: Any) -> int | None:
    """The signal that has ended a worker; ``None``: none was ended by one, or the error says nothing of workers."""
    lost = isinstance(error, EOFError | ConnectionError) or "DataLoader worker" in str(error)
    for worker in (getattr(iterator, "_workers", None) or ()) if lost else ():
        with contextlib.suppress(Exception):  # another library's worker
            worker.join(_EXIT_S)
            if (worker.exitcode or 0) < 0:
                return -int(worker.exitcode)
    return None
