from __future__ import annotations

import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.scaling.cluster import Cluster
from pipetune.scaling.slurm import array_script, collect_script
from pipetune.scaling.tasks import Task

TASKS = (
    Task(number=0, label="ranks=1", words=("sweep", "--ranks=1", "--dataset", "/data/it's here")),
    Task(number=1, label="ranks=2", words=("sweep", "--ranks=2", "--dataset", '$(rm -rf /) "x"\n`y`')),
)


def script(cluster: Cluster = Cluster(), folder: Path = Path("/shared/run")) -> str:  # noqa: B008
    return array_script(cluster, TASKS, folder, Path("/home/me/my work"))


def test_each_key_of_the_cluster_is_a_directive() -> None:
    text = script(Cluster(
        partition="gpu", account="vision", qos="long", constraint="a100&ib", reservation="mine", gpus_per_node="a100:8",
        cpus_per_task=64, memory="500G", time="2:00:00", at_once=3, signal_s=90, options=("--mail-type=END",),
        setup=("module load cuda",), variables={"A": "b c"},
    ))  # fmt: skip
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    for expected in (
        "--partition=gpu", "--account=vision", "--qos=long", "--constraint=a100&ib", "--reservation=mine",
        "--gpus-per-node=a100:8", "--cpus-per-task=64", "--mem=500G", "--time=2:00:00", "--array=0-1%3", "--exclusive",
        "--signal=B:USR1@90", "--mail-type=END", "--requeue", "--nodes=1", "--ntasks-per-node=1", "--open-mode=append",
        '--output="/shared/run/task-%a.log"', "--job-name=pipetune-run",
    ):  # fmt: skip
        assert f"#SBATCH {expected}" in lines, expected
    directives = [number for number, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert directives == list(range(1, 1 + len(directives))), "sbatch reads none after the first command"
    assert lines.index("module load cuda") > lines.index("export A='b c'")


def test_what_is_not_named_is_not_written() -> None:
    text = script()
    for name in ("partition", "gpus", "gres", "time=", "cpus-per-task", "account"):
        assert f"--{name}" not in text
    assert "#SBATCH --no-requeue" in script(Cluster(requeue=False))
    assert "scontrol" not in script(Cluster(requeue=False))


def test_several_hosts_run_the_command_once_each_and_go_on_together() -> None:
    tasks = [Task(number=0, label="", words=("sweep", "--hosts", "4", "--dataset", "/d"))]
    text = array_script(Cluster(cpus_per_task=64), tasks, Path("/shared/run"), Path("/home"))
    assert "#SBATCH --nodes=4" in text.splitlines()
    assert 'srun --nodes=4 --ntasks-per-node=1 --cpus-per-task=64 python3 -m pipetune "$@" &' in text
    assert '--resume "$out" --hosts auto ' in text
    assert "srun" not in script()
    assert "--hosts" not in script()


def test_a_percent_sign_in_the_folder_is_no_pattern() -> None:
    assert '--output="/shared/50%%/task-%a.log"' in script(folder=Path("/shared/50%"))


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A python3 that writes down how it was started."""
    fake = tmp_path / "python3"
    fake.write_text(f'#!/bin/bash\nprintf "%s\\0" "$PWD" "$@" > {shlex.quote(str(tmp_path))}/words\n')
    fake.chmod(0o755)
    return fake


def run(text: str, number: int, folder: Path) -> tuple[int, list[str]]:
    """Exit code of the script, and the words that pipetune got, the working folder first."""
    (folder / "run").mkdir(exist_ok=True)
    (folder / "words").unlink(missing_ok=True)
    done = subprocess.run(["bash", "-c", text], env={"SLURM_ARRAY_TASK_ID": str(number), "PATH": "/usr/bin:/bin"},
                          check=False, capture_output=True, text=True)  # fmt: skip
    words = folder / "words"
    return done.returncode, words.read_bytes().decode().split("\0")[:-1] if words.exists() else []


def test_each_task_gets_its_words_as_they_are(tmp_path: Path, started: Path) -> None:
    folder, cwd = tmp_path / "the run", tmp_path / "it's mine"
    cwd.mkdir()
    text = array_script(Cluster(python=str(started)), TASKS, folder, cwd)
    for task in TASKS:
        code, words = run(text, task.number, tmp_path)
        out = str(folder / f"task-{task.number}")
        assert (code, words) == (0, [str(cwd), "-m", "pipetune", "sweep", "--out", out, *task.words[1:]])


def test_a_task_that_is_queued_again_goes_on(tmp_path: Path, started: Path) -> None:
    (tmp_path / "run" / "task-1").mkdir(parents=True)
    (tmp_path / "run" / "task-1" / "run.json").touch()
    text = array_script(Cluster(python=str(started)), TASKS, tmp_path / "run", tmp_path)
    out = str(tmp_path / "run" / "task-1")
    assert run(text, 1, tmp_path)[1][1:] == ["-m", "pipetune", "sweep", "--resume", out]
    assert run(text, 0, tmp_path)[1][3:5] == ["sweep", "--out"]


def test_a_task_that_is_complete_ends_at_once_and_one_that_measured_nothing_begins_anew(
    tmp_path: Path, started: Path
) -> None:
    out = tmp_path / "run" / "task-1"
    out.mkdir(parents=True)
    (out / "script.log").touch()
    text = array_script(Cluster(python=str(started)), TASKS, tmp_path / "run", tmp_path)
    assert run(text, 1, tmp_path)[1][3:6] == ["sweep", "--out", str(out)]
    assert not out.exists()
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert [name.partition(".")[2].partition(".")[0] for name in left] == ["code", "unfinished"]
    assert (tmp_path / "run" / "task-1.code").read_text() == "0\n"
    out.mkdir()
    (out / "run.json").touch()
    (out / "result.json").write_text('{\n  "status": "target_met",\n  "complete": true,\n')
    assert run(text, 1, tmp_path) == (0, [])
    (out / "result.json").write_text('{\n  "complete": false,\n')
    assert run(text, 1, tmp_path)[1][4] == "--resume"


def wait_until(there: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not there():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("setup", [(), ("set -euo pipefail",)], ids=["", "errors end it"])
@pytest.mark.parametrize(("signum", "requeued"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_before_its_limit_a_task_is_requeued_and_scancel_ends_it(
    tmp_path: Path, signum: signal.Signals, requeued: bool, setup: tuple[str, ...]
) -> None:
    """Its sweep gets SIGTERM, and as much time as it takes."""
    for name, content in {
        "python3": 'trap \'sleep 0.3; touch "$0.saved"; exit 143\' TERM\ntouch "$0.runs"\n'
        "for n in {1..600}; do sleep 0.05; done",
        "scontrol": 'echo "$@" > "$0.words"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{content}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "run").mkdir()
    cluster = Cluster(python=str(tmp_path / "python3"), setup=setup)
    text = array_script(cluster, TASKS, tmp_path / "run", tmp_path)
    variables = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "42", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    process = subprocess.Popen(["bash", "-c", text], env=variables)
    wait_until((tmp_path / "python3.runs").exists)
    process.send_signal(signum)
    process.send_signal(signum)  # as impatient people do
    assert process.wait(timeout=20) == 143
    assert (tmp_path / "python3.saved").exists(), "it has written down what it had"
    assert (tmp_path / "run" / "task-1.code").read_text() == "143\n"
    words = tmp_path / "scontrol.words"
    assert (words.read_text() if words.exists() else "") == ("requeue 42_1\n" if requeued else "")
    words.unlink(missing_ok=True)
    variables["SLURM_RESTART_COUNT"] = "5"
    (tmp_path / "python3.runs").unlink()
    process = subprocess.Popen(["bash", "-c", text], env=variables)
    wait_until((tmp_path / "python3.runs").exists)
    process.send_signal(signum)
    assert process.wait(timeout=20) == 143
    assert not words.exists(), "one that never ends is not started for ever"


def test_a_folder_that_would_end_a_directive_is_refused(tmp_path: Path) -> None:
    for name in ('a"b', "a\nb", "a\\b"):
        with pytest.raises(UsageError, match="does not take"):
            script(folder=tmp_path / name)


def test_a_working_folder_that_is_not_there_ends_the_task(tmp_path: Path, started: Path) -> None:
    text = array_script(Cluster(python=str(started)), TASKS, tmp_path / "run", tmp_path / "gone")
    assert run(text, 0, tmp_path) == (2, [])


def test_the_collecting_job_needs_no_host_of_its_own(tmp_path: Path) -> None:
    text = collect_script(Cluster(partition="gpu", gpus_per_node=8), Path("/shared/run"), tmp_path)
    assert "--exclusive" not in text
    assert "--gpus" not in text
    assert text.splitlines()[-1] == "exec python3 -m pipetune launch --collect /shared/run"
