"""The training scripts that are tuned, how each is started, and what is read from its output."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import bench

SCRIPTS = bench.ROOT / "tests" / "scripts"
#: Time of a training step besides loading (ms): on two cores two loader workers keep up with it, one does not.
STEP_MS = 18
_RATE = re.compile(r"epoch (\d+): ([0-9.]+) images/s")


@dataclass(frozen=True, slots=True)
class Case:
    """One script."""

    name: str
    file: str
    workers: int
    """As it has them."""
    needs: str | None = None
    """Package without which it is left out."""
    setup_s: float = 0.0
    ranks: int = 1
    images: int | None = None
    """Images of an epoch; ``None``: all."""
    refused: str | None = None
    """A part of what a sweep says of a script that it cannot tune; ``None``: it can."""

    def command(
        self, data: Path, workers: int | None = None, epochs: int = 1000, seen: Path | None = None
    ) -> list[str]:
        """The command that trains.

        Args:
            data: folder of images; of a script that reads shards they lie beside it.
            workers: other ones; ``None``: its own.
        """
        launch = [sys.executable]
        if self.ranks > 1:
            launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
        source = ["--data", str(data)]
        if self.file == "classic.py":
            source = [str(data), "--setup-s", str(self.setup_s)]
        elif self.file == "steady.py":
            source = [str(data), *([] if self.images is None else ["--images", str(self.images)])]
        elif self.file == "shards.py":
            source = ["--shards", str(data.parent / "shards" / "*.tar")]
        return [
            *launch, str(SCRIPTS / self.file), *source, "--workers", str(self.workers if workers is None else workers),
            "--epochs", str(epochs), "--step-ms", str(STEP_MS), *([] if seen is None else ["--seen", str(seen)]),
        ]  # fmt: skip


CASES = (
    Case("short epochs with new workers", "steady.py", 1, images=160),
    Case("classic", "classic.py", 1),
    Case("classic, set-up of 20 s", "classic.py", 1, setup_s=20.0),
    Case("prefetcher", "prefetcher.py", 1),
    Case("endless loader", "endless.py", 1),
    Case("iterable shards", "shards.py", 1),
    Case("two ranks, torchrun", "ranks.py", 0, ranks=2),
    Case("Lightning", "with_lightning.py", 1, needs="lightning"),
    Case("Accelerate", "with_accelerate.py", 1, needs="accelerate"),
    Case("HF Trainer", "with_trainer.py", 1, needs="transformers"),
    Case("get_batch", "get_batch.py", 0, refused="its batches come from get_batch at"),
)


@dataclass(frozen=True, slots=True)
class Ending:
    """A script of which it is shown that its sweep ends soon and right."""

    name: str
    file: str
    options: tuple[str, ...]
    suffices: bool = False
    """It trains as fast as it can as it is."""
    says: str | None = None
    """What the only line of a sweep that cannot be holds; ``None``: it can."""
    ranks: int = 1
    refuses: str | None = None
    """What the failures of candidates hold that would change the training; ``None``: no candidate fails."""

    def command(self) -> list[str]:
        """The command that trains."""
        launch = [sys.executable]
        if self.ranks > 1:
            launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
        return [*launch, str(SCRIPTS / self.file), *self.options]


#: Scripts that rely on ``len(loader)`` check in each epoch that they got as many batches, and fail where they did not.
ENDINGS = (
    Ending("epochs of two batches", "by_length.py", ("--batches", "2")),
    Ending("epochs of two batches, workers that live on", "by_length.py", ("--batches", "2", "--persistent")),
    Ending("epochs of 19 batches, accumulation, buffers by length", "by_length.py", ("--batches", "19")),
    Ending("a single epoch of 19 batches", "by_length.py", ("--batches", "19", "--epochs", "1")),
    Ending("a batch taken aside in each epoch", "by_length.py", ("--batches", "19", "--look"),
           refuses="beside its loop"),
    Ending("two batches in all", "by_length.py", ("--batches", "2", "--epochs", "1"), says="ended after 2 batches"),
    Ending("two ranks on two cores", "by_length.py", ("--batches", "40", "--workers", "0"), ranks=2),
    Ending("a script that suffices", "by_length.py",
           ("--batches", "200", "--workers", "2", "--sample-ms", "2", "--step-ms", "120"), suffices=True),
    Ending("a step of three seconds", "by_length.py",
           ("--batches", "30", "--workers", "2", "--sample-ms", "100", "--step-ms", "3000"), suffices=True),
    Ending("settings shared by a dictionary", "by_length.py", ("--batches", "40", "--shared")),
)  # fmt: skip


def usable_cases() -> list[Case]:
    """Those whose packages are installed; the others are named."""
    found = []
    for case in CASES:
        if case.needs is None or importlib.util.find_spec(case.needs) is not None:
            found.append(case)
        else:
            print(f"left out: {case.name}, because {case.needs} is not installed")
    return found


def make_data(folder: Path, images: int) -> Path:
    """Photographs in class folders, and the same in tar shards beside them; returns the folder of folders."""
    from pipetune.datasets.index import read_index

    conditions = bench.loader_setting(folder, f"synthetic:caltech256?n={images}", seconds=1.0, rate=1000)
    index = read_index(conditions.workload.index_path)
    data, shards = folder / "data", folder / "shards"
    shards.mkdir()
    tars = [tarfile.open(shards / f"{number:03d}.tar", "w") for number in range(8)]  # noqa: SIM115 - closed below
    for number, image in enumerate(index.images):
        source = Path(index.root, image.path)
        place = data / f"class{number % 8}" / f"{number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, place) if source.stat().st_dev == folder.stat().st_dev else place.write_bytes(
            source.read_bytes()
        )
        tars[number % 8].add(source, f"{number}.jpg")
    for tar in tars:
        tar.close()
    return data


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run of a script came to."""

    rates: tuple[float, ...]
    """Images per second that it printed, epoch by epoch."""
    exit_code: int
    seconds: float
    stderr: str


def train(command: Sequence[str], cwd: Path) -> Trained:
    """Run a command to its end."""
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=cwd, env=bench.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    rates = tuple(float(rate) for _, rate in _RATE.findall(done.stdout))
    return Trained(rates, done.returncode, time.monotonic() - began, done.stderr)


def samples_once(seen: Path, images: int, epochs: int, ranks: int) -> bool:
    """Whether each epoch trained on each sample once; an incomplete last batch may be dropped, or filled up."""
    files = [Path(f"{seen}.{rank}") for rank in range(ranks)] if ranks > 1 else [seen]
    lines = [file.read_text().splitlines() for file in files]
    for epoch in range(epochs):
        numbers = [int(word) for one in lines for word in one[epoch].split()]
        if len(set(numbers)) < images - 16 * ranks or len(numbers) - len(set(numbers)) > ranks - 1:
            return False
    return True
