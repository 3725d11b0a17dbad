"""Stacks as py-spy reports them."""

from __future__ import annotations

from collections.abc import Callable

from pipetune.sampler.stacks.activity import Frame

SITE = "/venv/lib/python3.11/site-packages/"
STDLIB = "/usr/lib/python3.11/"
TORCH_LOADER = "torch/utils/data/dataloader.py"


def frame(name: str, file: str, line: int = 10) -> Frame:
    """Of a library, of the standard library or, where the file is in no folder, of the user."""
    stdlib = (
        "selectors.py",
        "multiprocessing/",
        "threading.py",
        "queue.py",
        "socket.py",
        "ssl.py",
        "http/",
        "asyncio/",
    )
    below = STDLIB if file.startswith(stdlib) else SITE if "/" in file else "/home/me/job/"
    return Frame(name, file, line, below + file)


def lines(**texts: str) -> Callable[[Frame], str]:
    """Source text by function."""
    return lambda seen: texts.get(seen.name, "")


def unqualified(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """As Python 3.10 and older name them: without the class."""
    return tuple(seen._replace(name=seen.name.rpartition(".")[2]) for seen in frames)


QUEUE_GET = (
    frame("_PollLikeSelector.select", "selectors.py", 415),
    frame("wait", "multiprocessing/connection.py", 931),
    frame("_ConnectionBase._poll", "multiprocessing/connection.py", 440),
    frame("_ConnectionBase.poll", "multiprocessing/connection.py", 257),
    frame("Queue.get", "multiprocessing/queues.py", 113),
)
