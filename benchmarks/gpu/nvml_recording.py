"""A recording of NVML: every raw answer of the driver, failures included, with its host time and what the call took.

Text, so that it packs well (a minute at full rate is some 2 MiB by xz). Its first line is a JSON object about the GPU,
with both clocks at the begin. Then, one a line:

    @ 1000123 1700000001000456           both clocks: us since the begin, us since 1970
    =3 ["nvmlDeviceGetClockInfo", [1]]   from here on, 3 is this call; handles are left out of its arguments
    3 1000140 45 0 1980                  at 1000140 us the call took 45 us, its return code was 0 and its value 1980
    3 1005201 44 0 .                     as before
    4 1005251 12 3                       return code 3 (NVML_ERROR_NOT_SUPPORTED)
    5 1005300 80 0/1699999999000000 [...]   what changes from call to call (the last sample seen) stands behind the code

The time of a row is that of the answer, when the call returned. A file that ends in the middle of a row, because its
writer was killed, is read up to there.
"""

from __future__ import annotations

import ctypes
import json
import lzma
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pipetune.machine.nvml.signals import VALUE_FIELDS

FORMAT = 1
_CLOCKS_EVERY_US = 1_000_000
#: Calls whose last argument is the newest time stamp that was seen, which changes.
_SINCE = {"nvmlDeviceGetSamples", "nvmlDeviceGetProcessUtilization"}


@dataclass(frozen=True, slots=True)
class Answer:
    """One row."""

    call: str
    arguments: tuple[Any, ...]
    t_us: int
    """When the call returned, since the begin."""
    took_us: int
    code: int
    value: Any
    """``None`` where the call failed."""
    since_us: int | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """All rows of a file."""

    header: dict[str, Any]
    answers: list[Answer]
    clocks_us: list[tuple[int, int]]
    """Both clocks: since the begin, and since 1970."""

    def monotonic_ns(self, t_us: int) -> int:
        """A row's time on ``time.monotonic_ns`` of the machine that recorded."""
        return int(self.header["began_ns"]) + 1000 * t_us

    def unix_us(self, t_us: int) -> int:
        """A row's time since 1970, by the nearest pair of clocks before it."""
        mono_us, unix_us = next((pair for pair in reversed(self.clocks_us) if pair[0] <= t_us), self.clocks_us[0])
        return unix_us + t_us - mono_us


class RecordingWriter:
    """Writes rows as they come; from any thread.

    Args:
        path: is overwritten.
        about: goes into the first line.
        clock: ns, like ``time.monotonic_ns``.
        unix: ns since 1970.
    """

    def __init__(
        self,
        path: Path,
        about: dict[str, Any],
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        unix: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock, self._unix, self._lock = clock, unix, threading.Lock()
        self._numbers: dict[str, int] = {}
        self._newest: dict[int, str] = {}
        self._began_ns = clock()
        self._clocks_due_us = 0
        self._file: IO[str] = path.open("w", encoding="utf-8", buffering=1 << 16)
        header = {"format": FORMAT, "began_ns": self._began_ns, "began_unix_ns": unix(), **about}
        self._file.write(json.dumps(header) + "\n")

    def write(self, call: str, arguments: tuple[Any, ...], began_ns: int, code: int, value: Any) -> None:
        """Add the answer to a call that began at ``began_ns`` and has just returned."""
        ended_ns = self._clock()
        t_us, took_us = (ended_ns - self._began_ns) // 1000, (ended_ns - began_ns) // 1000
        since = f"/{arguments[-1]}" if call in _SINCE else ""
        plain = [a for a in (arguments[:-1] if since else arguments) if isinstance(a, (int, str, list))]
        name = json.dumps([call, plain])
        text = json.dumps(value, separators=(",", ":")) if code == 0 else ""
        with self._lock:
            if t_us >= self._clocks_due_us:
                self._clocks_due_us = t_us + _CLOCKS_EVERY_US
                self._file.write(f"@ {(self._clock() - self._began_ns) // 1000} {self._unix() // 1000}\n")
                self._file.flush()  # whoever is killed loses a second
            number = self._numbers.get(name)
            if number is None:
                number = self._numbers[name] = len(self._numbers)
                self._file.write(f"={number} {name}\n")
            shown = "." if code == 0 and self._newest.get(number) == text else text
            if code == 0:
                self._newest[number] = text
            self._file.write(f"{number} {t_us} {took_us} {code}{since} {shown}".rstrip() + "\n")

    def close(self) -> None:
        """Finish the file."""
        with self._lock:
            self._file.close()


class RecordedBinding:
    """The binding; each call that is made through it goes into a recording.

    To be given to :class:`pipetune.machine.nvml.gpu.Gpu` in place of ``pynvml``.
    """

    def __init__(self, library: Any, writer: RecordingWriter, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._library, self._writer, self._clock = library, writer, clock

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._library, name)
        if not name.startswith("nvml") or isinstance(original, type) or not callable(original):
            return original

        def ask(*arguments: Any) -> Any:
            began_ns = self._clock()
            try:
                answer = original(*arguments)
            except self._library.NVMLError as error:
                self._writer.write(name, arguments, began_ns, error.value, None)
                raise
            self._writer.write(name, arguments, began_ns, 0, encode_answer(name, answer))
            return answer

        setattr(self, name, ask)  # the next look-up costs nothing
        return ask


def encode_answer(call: str, answer: Any) -> Any:
    """An answer of the binding as JSON: numbers, and lists and objects of them."""
    if call == "nvmlDeviceGetSamples":
        kind, samples = answer
        return [kind, [[s.timeStamp, getattr(s.sampleValue, VALUE_FIELDS[kind])] for s in samples]]
    if call == "nvmlDeviceGetFieldValues":
        return [[f.fieldId, f.nvmlReturn, f.valueType, getattr(f.value, VALUE_FIELDS[f.valueType])] for f in answer]
    if call == "nvmlGpmMetricsGet":
        metrics = answer.metrics[: answer.numMetrics]
        return [[m.metricId, m.nvmlReturn, round(m.value, 3)] for m in metrics]
    return encode(answer)


def encode(value: Any) -> Any:
    """Numbers, text, and lists and objects of them; ``None`` for handles and other pointers."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, ctypes.Structure):
        fields = {field[0]: getattr(value, field[0]) for field in value._fields_}
    elif hasattr(value, "__dict__"):
        fields = vars(value)
    else:
        return None
    plain = {name: item for name, item in fields.items() if isinstance(item, (int, float, str))}
    return plain or None


def read_recording(path: Path) -> Recording:
    """The rows of a file, packed by xz or not.

    Raises:
        ValueError: it is no recording.
    """
    opener: Any = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        lines = _complete_lines(file)
        try:
            header = json.loads(next(lines, "null"))
        except json.JSONDecodeError:
            header = None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"{path} is no recording of NVML in format {FORMAT}")
        clocks: list[tuple[int, int]] = [(0, header["began_unix_ns"] // 1000)]
        answers = list(_parse(lines, clocks))
    return Recording(header, answers, clocks)


def pack_recording(path: Path) -> Path:
    """Compress a recording beside itself, and remove it; the new path."""
    packed = path.with_name(path.name + ".xz")
    with lzma.open(packed, "wb", preset=6) as target, path.open("rb") as source:
        while block := source.read(1 << 20):
            target.write(block)
    path.unlink()
    return packed


def _complete_lines(file: IO[str]) -> Iterator[str]:
    try:
        for line in file:
            if line.endswith("\n"):
                yield line
    except EOFError:  # the end of a packed file is missing
        return


def _parse(lines: Iterator[str], clocks: list[tuple[int, int]]) -> Iterator[Answer]:
    calls: dict[str, tuple[str, tuple[Any, ...]]] = {}
    newest: dict[str, Any] = {}
    for line in lines:
        first, _, rest = line.rstrip("\n").partition(" ")
        if first == "@":
            mono_us, unix_us = rest.split()
            clocks.append((int(mono_us), int(unix_us)))
            continue
        if first.startswith("="):
            name, arguments = json.loads(rest)
            calls[first[1:]] = (name, tuple(arguments))
            continue
        t_us, took_us, code, *text = rest.split(" ", 3)
        code, _, since = code.partition("/")
        if text and text[0] != ".":
            newest[first] = json.loads(text[0])
        name, arguments = calls[first]
        yield Answer(
            name,
            arguments,
            int(t_us),
            int(took_us),
            int(code),
            newest[first] if code == "0" else None,
            int(since) if since else None,
        )
