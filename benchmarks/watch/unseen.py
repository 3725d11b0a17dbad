"""Jobs without an accelerator that can be seen, and mostly without a loader that can be: they train on the CPU.

Only what their threads do tells what they wait for.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.watch.loops import BATCH, Run, loader, recorded, sample_s, seconds_of
from benchmarks.watch.sources import Files, Memory, Plain, Samples, decode_cv2, decode_pil, served_port
from benchmarks.watch.stalls import evaluate, every

_SMALL = (64, 64, 3)
_WORDS = re.compile(r"\w+|[^\w\s]")
#: A sentence is cut into pieces that stand in a vocabulary, the longest first.
_PIECES = {text[start:end] for text in ("training", "tokens", "pipeline") for start in range(4) for end in range(5, 9)}
_TEXT = "The pipeline tokenises its training text, sentence by sentence, in plain Python; nothing is compiled. " * 30


def steps(seconds: float) -> Callable[[], None]:
    """A training step of a small network on one core of the CPU that takes about so long."""
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, 512)

    def once() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    times = max(1, round(seconds / seconds_of(once)))

    def step() -> None:
        for _ in range(times):
            once()

    return step


def train(
    batches: Iterator[Any], run: Run, step: Callable[[], None], after: Callable[[Any], Any] | None = None
) -> None:
    """The training loop of all jobs here."""
    for batch in recorded(batches, run):
        step()
        if after is not None:
            after(batch)


def forever(make: Callable[[int], Any]) -> Iterator[Any]:
    """Batch after batch, made by the loop itself."""
    number = 0
    while True:
        yield make(number)
        number += 1


def _batch(samples: Samples, number: int, size: int = BATCH) -> Any:
    return np.stack([samples[number * size + place] for place in range(size)])


def _photos(run: Run, decoder: Callable[[bytes], Any] = decode_pil) -> tuple[Samples, float]:
    """Photographs, and the time to decode a batch of them (s)."""
    samples = Samples((Files(run.paths()),), decoder)
    return samples, BATCH * sample_s(samples)


def pool_of_threads(run: Run) -> None:
    """A pool of the script's own decodes a few batches ahead."""
    samples, batch_s = _photos(run, decode_cv2)
    pool, ahead = ThreadPoolExecutor(1), 2
    waiting: list[Future[Any]] = [pool.submit(_batch, samples, number) for number in range(ahead)]

    def next_batch(number: int) -> Any:
        batch = waiting.pop(0).result()
        waiting.append(pool.submit(_batch, samples, number + ahead))
        return batch

    train(forever(next_batch), run, steps(run.about(0.3) * batch_s))


def queue_of_threads(run: Run) -> None:
    """A thread fills a queue."""
    samples, batch_s = _photos(run)
    batches: queue.Queue[Any] = queue.Queue(4)

    def fill() -> None:
        for number in range(10**9):
            batches.put(_batch(samples, number))

    threading.Thread(target=fill, daemon=True).start()
    train(forever(lambda number: batches.get()), run, steps(run.about(0.3) * batch_s))


def stages_of_threads(run: Run) -> None:
    """As tf.data has it: a thread reads files, another decodes them, a third makes batches that the loop takes."""
    samples, batch_s = _photos(run, decode_cv2)
    read = samples.fetch[0]
    files: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    room = threading.Semaphore(64)
    pixels: queue.Queue[Any] = queue.Queue(32)
    batches: queue.Queue[Any] = queue.Queue(2)

    def reads() -> None:
        for number in range(10**9):
            room.acquire()
            files.put(read(number))

    def decodes() -> None:
        while True:
            pixels.put(samples.decode(files.get()))
            room.release()

    def stacks() -> None:
        while True:
            batches.put(np.stack([pixels.get() for _ in range(BATCH)]))

    for stage in (reads, decodes, stacks):
        threading.Thread(target=stage, daemon=True).start()
    train(forever(lambda number: batches.get()), run, steps(run.about(0.3) * batch_s))


def _fill(batches: Any, samples: Samples) -> None:
    for number in range(10**9):
        batches.put(_batch(samples, number))


def queue_of_processes(run: Run) -> None:
    """A process of the script's own fills a queue."""
    samples, batch_s = _photos(run)
    step = steps(run.about(0.3) * batch_s)
    batches: Any = multiprocessing.get_context("fork").Queue(4)
    multiprocessing.get_context("fork").Process(target=_fill, args=(batches, samples), daemon=True).start()
    train(forever(lambda number: batches.get()), run, step)


def fetches_in_threads(run: Run) -> None:
    """Two threads fetch from a slow server, each over a connection of its own."""
    port, paths = served_port(run.folder), run.paths()
    batches: queue.Queue[Any] = queue.Queue(4)

    def fill(first: int) -> None:
        fetched = Samples((Plain(port, paths),), decode_cv2)
        for number in range(first, 10**9, 2):
            batches.put(_batch(fetched, number, 4))

    for first in (0, 1):
        threading.Thread(target=fill, args=(first,), daemon=True).start()
    train(forever(lambda number: batches.get()), run, steps(0.03))


def decodes_itself(run: Run) -> None:
    """The loop opens and decodes its images, with no loader at all."""
    samples, batch_s = _photos(run)
    train(forever(lambda number: _batch(samples, number)), run, steps(run.about(0.3) * batch_s))


def tokenise(text: str) -> Counter[str]:
    """Words to the longest pieces that are known, in plain Python."""
    found: Counter[str] = Counter()
    for word in _WORDS.findall(text.lower()):
        start = 0
        while start < len(word):
            end = next((end for end in range(len(word), start, -1) if word[start:end] in _PIECES), start + 1)
            found[word[start:end]] += 1
            start = end
    return found


def tokenises(run: Run) -> None:
    """Half of the time goes into the text of the next step."""
    step = steps(run.about(1.0) * 4 * seconds_of(lambda: tokenise(_TEXT)))
    train(forever(lambda number: [tokenise(_TEXT) for _ in range(4)]), run, step)


def scores(batch: Any) -> float:
    """A confusion matrix, counted in Python."""
    counts: dict[tuple[int, int], int] = {}
    for number in range(400 * len(batch)):
        pair = (number * 7 % 10, number * 13 % 10)
        counts[pair] = counts.get(pair, 0) + 1
    return sum(count for (one, other), count in counts.items() if one == other) / sum(counts.values())


def counts_metrics(run: Run) -> None:
    """Beside a loader worker that is fast enough, nearly half of the time goes into metrics."""
    one_s = seconds_of(lambda: scores(range(BATCH)))
    train(iter(loader(Memory(_SMALL), 1)), run, steps(run.about(1.2) * 10 * one_s), lambda batch: [
        scores(batch) for _ in range(10)
    ])  # fmt: skip


def checkpoints(run: Run) -> None:
    """Saving takes about a third of the time."""
    import torch

    state = {f"layer{number}": torch.randn(1 << 20) for number in range(12)}

    def save() -> None:
        with open(run.folder / "checkpoint.part", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(run.folder / "checkpoint.part", run.folder / "checkpoint.pt")

    pause_s = run.about(2.0) * seconds_of(save)
    train(iter(loader(Memory(_SMALL), 1)), run, steps(0.05), every(pause_s, save))


def evaluations(run: Run) -> None:
    """Evaluating takes about a third of the time."""
    results = list(range(20_000))
    train(iter(loader(Memory(_SMALL), 1)), run, steps(0.05), every(run.about(2.4), lambda: evaluate(results)))


def trains_from_memory(run: Run) -> None:
    """Nothing but steps: there is no loader, and none is needed."""
    train(forever(lambda number: None), run, steps(0.05))


def trains_beside_threads(run: Run) -> None:
    """A thread is always ahead of the loop, and has little to do."""
    batches: queue.Queue[Any] = queue.Queue(4)
    memory = Memory(_SMALL)

    def fill() -> None:
        for number in range(10**9):
            batches.put(np.stack([memory[number + place] for place in range(BATCH)]))

    threading.Thread(target=fill, daemon=True).start()
    train(forever(lambda number: batches.get()), run, steps(0.05))
