from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.scaling.cluster import Cluster, read_cluster, seconds_of


def read(folder: Path, content: str) -> Cluster:
    file = folder / "cluster.toml"
    file.write_text(content)
    return read_cluster(file)


def test_an_empty_file_is_a_slurm_cluster_of_whole_hosts(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Cluster()


def test_keys_are_written_with_hyphens_or_underscores(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        'partition = "gpu"\ngpus-per-node = 8\ncpus_per_task = 64\ntime = "1:30:00"\nsetup = ["module load cuda"]\n'
        '[variables]\nOMP_NUM_THREADS = "1"\n',
    )
    assert found == Cluster(
        partition="gpu", gpus_per_node=8, cpus_per_task=64, time="1:30:00", setup=("module load cuda",),
        variables={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("partion = 'gpu'", "did you mean 'partition'"),
        ("qqqqqq = 1", "it has scheduler"),
        ("partition = 'a b'", "partition = 'a b' is not a valid name"),
        ("partition = '''a\n#SBATCH --wrap=x'''", "is not a valid name"),
        ('account = "a\'b"', "is not a valid name"),
        ("scheduler = 'pbs'", "Invalid enum value 'pbs'"),
        ("gpus-per-node = 0", "gpus-per-node = 0"),
        ("gpus-per-node = 'a100:x'", "write 8, or a100:8"),
        ("gpus-per-node = 8\ngres = 'gpu:8'", "say the same"),
        ("cpus-per-task = -1", "cpus-per-task = -1"),
        ("cpus-per-task = '4'", "Expected int"),
        ("at-once = 0", "at-once = 0"),
        ("time = 'soon'", "write minutes"),
        ("time = '1'", "no longer than signal-s"),
        ("signal-s = 1", "too short to end in"),
        ("memory = 'lots'", "write 512G"),
        ("exclusive = false\ncpus-per-task = 4", "all memory of the host"),
        ("exclusive = false\nmemory = '8G'", "no cores are named"),
        ("options = ['--array=1-3']", "--array is written by pipetune"),
        ("options = ['--comment=a --array=0-9']", "without spaces"),
        ("partition = 'a#b'", "is not a valid name"),
        ("options = ['-p gpu']", "not an option of sbatch"),
        ('options = ["--comment=a\\n#SBATCH --wrap=x"]', "not an option of sbatch"),
        ('setup = ["a\\nb"]', "more than one line"),
        ("[variables]\n'A B' = 'x'", "'A B' is not a valid name"),
        ("scheduler = 'kubernetes'", "no image"),
        ("scheduler = 'kubernetes'\nimage = 'x'", "no claim"),
        ("scheduler = 'skypilot'", "no claim"),
        ("scheduler = 'kubernetes'\nimage = 'x'\nclaim = 'y'\ngres = 'gpu:8'", "gres is for slurm"),
        ("scheduler = 'skypilot'\nclaim = 'y'\nmemory = '8G'", "memory is for slurm and kubernetes"),
        ("image = 'x'", "image is for kubernetes and skypilot"),
        ("partition = ", "is not valid TOML"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(tmp_path, content)


def test_minutes_may_be_a_number(tmp_path: Path) -> None:
    assert read(tmp_path, "time = 30").time == 30


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_cluster(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800), ("30:10", 1810), ("1:30:00", 5400), ("1-12", 129_600), ("1-12:30", 131_400),
        ("2-0:0:5", 172_805), ("0", None), ("x", None), ("1:2:3:4", None), ("-5", None),
    ],
)  # fmt: skip
def test_times_are_slurms(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds
