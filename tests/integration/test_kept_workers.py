"""A script whose workers are dear to start and whose epochs are short: workers that live on are measured and told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration import commands
from tests.integration.own_scripts import result_of, sweep, write

#: Starting and loading sleep, so that other load on the machine hardly changes what is gained: an epoch of 20 batches
#: takes about 0.6 s, and its worker's start 1.5 s.
SCRIPT = """
import sys
import time
import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), float(index)), index


def start(worker):
    time.sleep(1.5)


def main():
    torch.set_num_threads(1)
    loader = DataLoader(Slow(), batch_size=8, shuffle=True, num_workers=1, worker_init_fn=start)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    for epoch in range(int(sys.argv[1])):
        seen = []
        for inputs, numbers in loader:
            torch.nn.functional.cross_entropy(model(inputs / 100), numbers % 2).backward()
            optimizer.step()
            time.sleep(0.024)
            seen += numbers.tolist()
        print(*seen, flush=True)


if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_workers_that_live_on_are_recommended_with_their_condition(place: Path, nobody_is_left: None) -> None:
    command = write(place, SCRIPT)
    done = sweep(place, [*command, "1000"], "--workers", "1")
    assert done.returncode == 0, done.stderr
    result = result_of(place)
    assert result["recommended"]["candidate"]["keep_workers"], done.stdout
    assert result["edit"]["verdict"] == "faster"
    assert result["edit"]["gain_ci95"][0] > 1.3
    text = " ".join(done.stdout.split())
    assert "persistent_workers False -> True" in text
    line = next(number for number, text in enumerate(SCRIPT.splitlines(), start=1) if "loader = DataLoader(" in text)
    assert f"src/train.py:{line}: " in text
    assert "the training is the same as long as the script changes nothing of the data set between epochs" in text

    tuned = subprocess.run(
        [*commands.python(), "run", "--tuned", "run", "--", *command, "3"],
        cwd=place, env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    assert "persistent_workers False -> True" in tuned.stderr
    epochs = [sorted(map(int, line.split())) for line in tuned.stdout.splitlines()]
    assert epochs == [list(range(160))] * 3, "each sample once per epoch"


@pytest.mark.slow
def test_workers_of_a_data_set_that_changes_with_epochs_are_not_kept(place: Path, nobody_is_left: None) -> None:
    changing = SCRIPT.replace("        seen = []\n", "        seen = []\n        loader.dataset.set_epoch(epoch)\n")
    changing = changing.replace(
        "    def __len__", "    def set_epoch(self, epoch):\n        self.epoch = epoch\n\n    def __len__"
    )
    done = sweep(place, [*write(place, changing), "1000"], "--workers", "1")
    assert done.returncode == 0, done.stderr
    result = result_of(place)
    assert result["recommended"]["role"] == "baseline", done.stdout
    assert not any(one["candidate"]["keep_workers"] for one in result["outcomes"])
    assert "persistent_workers=True was not tried: the data set is told of each epoch" in " ".join(done.stdout.split())
