"""Valid inputs, damaged: what a torn disk, another version or somebody hostile makes of them.

The same ones at each run: examples come from the names of the tests, not from chance. To look further,
``FUZZ_TIMES=20 pytest tests/fuzz`` tries twenty times as many, others each time.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import resource
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

#: Numbers at which counts, offsets and types end.
EDGES = (0, 1, -1, 127, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, -(2**63), 2**64)
#: Values of JSON in place of others: each type, and the ends of each.
STRANGE: tuple[Any, ...] = (
    None, True, False, "", "x", "\ud800", "a\n\x1b[31m<b>'\"", "../../x", [], {}, [None], [[]], {"": None}, {"a": {}},
    -0.5, 1e-300, 1e18, 1e308, 10**30, *EDGES,
)  # fmt: skip


def examples(count: int) -> settings:
    """So many examples, the same ones each time, without a time limit for one."""
    times = int(os.environ.get("FUZZ_TIMES", "1"))
    quiet = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)
    return settings(
        max_examples=times * count, derandomize=times == 1, deadline=None, database=None, suppress_health_check=quiet,
    )  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, originals: Sequence[bytes]) -> bytes:
    """One of these, with one to four changes: cut off, bits turned, numbers of their ends, parts gone or twice."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(1, 64))
        change = draw(st.sampled_from(("cut", "bit", "byte", "number", "remove", "repeat", "insert", "zero")))
        if change == "cut":
            del data[at:]
        elif change in ("bit", "byte") and at < len(data):
            data[at] = data[at] ^ (1 << length % 8) if change == "bit" else 4 * length - 1
        elif change == "number":
            form = draw(st.sampled_from(("<H", ">H", "<I", ">I", "<Q", ">Q")))
            size = struct.calcsize(form)
            number = draw(st.sampled_from(EDGES)) % (1 << 8 * size)
            data[at : at + size] = struct.pack(form, number)
        elif change == "remove":
            del data[at : at + length]
        elif change == "repeat":
            data[at:at] = data[at : at + length] * draw(st.integers(1, 8))
        elif change == "insert":
            data[at:at] = draw(st.binary(max_size=16))
        elif change == "zero":
            data[at : at + length] = bytes(len(data[at : at + length]))
    return bytes(data)


@st.composite
def changed(draw: st.DrawFn, original: Any) -> Any:
    """A JSON value in which one to three values, at whatever depth, are others, gone, or of another's place."""
    value = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = _place(draw, value)
        if holder is None:
            return copy.deepcopy(draw(st.sampled_from(STRANGE)))
        change = draw(st.sampled_from(("strange", "strange", "strange", "strange", "remove", "swap", "nest")))
        if change == "remove":
            del holder[key]
        elif change == "swap":
            other, name = _place(draw, value)
            holder[key] = copy.deepcopy(other[name])
        else:
            strange = copy.deepcopy(draw(st.sampled_from(STRANGE)))
            holder[key] = strange if change == "strange" else [strange, {"key": strange}]
    return value


def _place(draw: st.DrawFn, value: Any) -> tuple[Any, Any]:
    """A place in a value: what holds it, and its key there. What is further up comes more often."""
    found = None, None
    while isinstance(value, (dict, list)) and value:
        key = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
        found = value, key
        value = value[key]
        if draw(st.booleans()):
            break
    return found


def changed_lines(original: bytes) -> st.SearchStrategy[bytes]:
    """Lines of JSON, of which one is changed."""
    lines = original.splitlines()

    @st.composite
    def made(draw: st.DrawFn) -> bytes:
        number = draw(st.integers(0, len(lines) - 1))
        other = dumped(draw(changed(json.loads(lines[number]))))
        return b"\n".join([*lines[:number], other, *lines[number + 1 :]]) + b"\n"

    return made()


def dumped(value: Any) -> bytes:
    """As JSON; numbers that it has no sign for become ones that are too large."""
    return json.dumps(value).encode("ascii")


@contextlib.contextmanager
def little_memory(most_bytes: int) -> Iterator[None]:
    """Whatever runs here gets at most so much memory more; asking for more is a ``MemoryError``."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
