from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from pipetune.errors import PipetuneError, UsageError
from pipetune.report.array_text import array_lines
from pipetune.scaling import launch as launching
from pipetune.scaling.cluster import Cluster
from pipetune.scaling.launch import (
    COLLECTED_FILE,
    LAUNCH_FILE,
    collect,
    is_begun,
    lay_out,
    new_folder,
    read_launch,
    submit,
    write_collected,
)
from pipetune.scaling.tasks import Task
from tests.integration.commands import wait_until

TASKS = [
    Task(number=n, label=f"ranks={n + 1}", words=("sweep", f"--ranks={n + 1}", "--dataset", "/d")) for n in range(4)
]


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that says what it is told to, and writes down its words."""
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = folder / "sbatch"
    fake.write_text(
        '#!/bin/bash\ndir=$(dirname "$0")\necho "$@" >> "$dir/words"\n'
        'if [ -e "$dir/refuses" ]; then echo "sbatch: error: invalid partition specified: nix" >&2; exit 1; fi\n'
        'echo "$((41 + $(wc -l < "$dir/words")));cluster"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_the_array_and_then_the_job_that_collects(tmp_path: Path, sbatch: Path) -> None:
    launch = submit(lay_out(Cluster(), TASKS, tmp_path / "run", tmp_path))
    assert (launch.job, launch.collect_job) == ("42", "43")
    first, second = (sbatch / "words").read_text().splitlines()
    assert first == f"--parsable {tmp_path}/run/array.sh"
    assert second == f"--parsable --dependency=afterany:42 {tmp_path}/run/collect.sh"
    assert read_launch(tmp_path / "run") == launch
    assert (tmp_path / "run" / "array.sh").stat().st_mode & 0o077 == 0, "a command may have a password in it"


def test_what_slurm_refuses_is_told(tmp_path: Path, sbatch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sbatch / "refuses").touch()
    with pytest.raises(UsageError, match="invalid partition specified: nix"):
        submit(lay_out(Cluster(), TASKS, tmp_path / "run", tmp_path))
    assert new_folder(tmp_path / "run", datetime(2026, 1, 2)), "the corrected command may name it again"
    assert not list((tmp_path / "run").iterdir())
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match="no sbatch here"):
        submit(lay_out(Cluster(), TASKS, tmp_path / "other", tmp_path))


def test_a_number_after_what_the_cluster_prints_is_the_job(tmp_path: Path, sbatch: Path) -> None:
    real = sbatch / "sbatch"
    text = real.read_text()
    real.write_text(
        text.replace("#!/bin/bash\n", '#!/bin/bash\necho "Welcome to 3 clusters"\necho "-> 2 checks: ok"\n')
    )
    assert submit(lay_out(Cluster(), TASKS, tmp_path / "run", tmp_path)).job == "42"


def test_an_array_that_was_taken_is_not_thrown_away(tmp_path: Path, sbatch: Path) -> None:
    (sbatch / "sbatch").write_text('#!/bin/bash\necho "Submitted"\n')
    with pytest.raises(PipetuneError, match=r"took array.sh and named no job: Submitted.*squeue"):
        submit(lay_out(Cluster(), TASKS, tmp_path / "run", tmp_path))
    assert (tmp_path / "run" / "array.sh").exists()


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    assert new_folder(tmp_path / "new", datetime(2026, 1, 2)) == tmp_path / "new"
    assert new_folder(None, datetime(2026, 1, 2)).name == "20260102-000000-array"
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(UsageError, match="is not empty"):
            new_folder(place, datetime(2026, 1, 2))


def test_what_came_of_each_task(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lay_out(Cluster(), TASKS, folder, tmp_path)
    for number in (1, 2, 3):
        (folder / f"task-{number}").mkdir()
        (folder / f"task-{number}" / "run.json").write_text(
            json.dumps({"schema": 1, "kind": "sweep", "host": {"hostname": f"n{number}"}})
        )
    (folder / "task-2" / "result.json").write_text(json.dumps({
        "schema": 1, "status": "target_met",
        "recommended": {"key": "opencv-w2", "samples_per_s": 1234.5, "ci95": [1200.0, 1300.0], "goodput": 0.93},
    }))  # fmt: skip
    (folder / "task-3" / "result.json").write_text(json.dumps({"schema": 1, "status": "failed", "recommended": None}))
    (folder / "task-3.code").write_text("1\n")
    (folder / "task-3.log").touch()
    launch, found = collect(folder)
    assert [one.status for one in found] == ["not started", "no result", "target_met", "failed"]
    assert (found[2].recommended, found[2].samples_per_s, found[2].goodput) == ("opencv-w2", 1234.5, 0.93)
    write_collected(folder, launch, found)
    stored = json.loads((folder / COLLECTED_FILE).read_text())
    assert [task["label"] for task in stored["tasks"]] == ["ranks=1", "ranks=2", "ranks=3", "ranks=4"]
    text = "\n".join(line.text for line in array_lines(found))
    assert "task 3: it ended with exit code 1: see task-3.log" in text
    (folder / "task-0.code").write_text("2\n")
    assert collect(folder)[1][0].status == "failed", "it has never come to a run folder"
    assert "1,234/s (1,200 to 1,300)" in text or "1,235/s (1,200 to 1,300)" in text
    assert "not at their end: 2 of 4 tasks (0, 1)" in text


def test_secrets_of_the_command_are_not_in_the_list_of_tasks(tmp_path: Path) -> None:
    secret = Task(number=0, label="", words=("sweep", "--", "python", "t.py", "--api-key", "hunter2"))
    lay_out(Cluster(), [secret], tmp_path / "run", tmp_path)
    assert "hunter2" not in (tmp_path / "run" / LAUNCH_FILE).read_text()
    assert "hunter2" in (tmp_path / "run" / "array.sh").read_text()


def test_a_folder_without_an_array(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no launch.json"):
        collect(tmp_path)
    (tmp_path / LAUNCH_FILE).write_text("{")
    with pytest.raises(PipetuneError, match="is damaged"):
        collect(tmp_path)


def test_here_tasks_run_one_after_the_other_and_the_first_failure_counts(tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text('#!/bin/bash\necho "$SLURM_ARRAY_TASK_ID" >> "$PWD/ran"\nexit $((SLURM_ARRAY_TASK_ID * 2))\n')
    fake.chmod(0o755)
    launch = lay_out(Cluster(python=str(fake)), TASKS, tmp_path / "run", tmp_path)
    told: list[int] = []
    assert launching.run_here(launch, lambda task: told.append(task.number)) == 2
    assert (tmp_path / "ran").read_text().split() == ["0", "1", "2", "3"]
    assert told == [0, 1, 2, 3]


def test_ctrl_c_ends_the_task_that_runs_here_and_no_other_begins(tmp_path: Path) -> None:
    """As a terminal sends it: to the whole group, and the sweep still writes down what it has."""
    fake = tmp_path / "python3"
    fake.write_text(
        "#!/bin/bash\ntrap 'sleep 0.3; touch \"$PWD/saved\"; exit 143' TERM\n"
        "echo \"$SLURM_ARRAY_TASK_ID\" >> \"$PWD/ran\"\nfor n in {1..600}; do sleep 0.05; done\n"
    )  # fmt: skip
    fake.chmod(0o755)
    lay_out(Cluster(python=str(fake)), TASKS, tmp_path / "run", tmp_path)
    program = (
        "import sys; from pathlib import Path; from pipetune.scaling.launch import read_launch, run_here\n"
        "try: run_here(read_launch(Path(sys.argv[1])), lambda task: None)\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "run")], start_new_session=True)
    until = time.monotonic() + 30
    while not (tmp_path / "ran").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as impatient people do
    assert process.wait(timeout=30) == 130
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "ran").read_text().split() == ["0"]


def test_a_task_that_runs_here_ends_when_launch_is_killed(tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/bash\ntrap 'touch \"$PWD/saved\"; exit 143' TERM\n"
                    'touch "$PWD/ran"\nfor n in {1..600}; do sleep 0.05; done\n')  # fmt: skip
    fake.chmod(0o755)
    lay_out(Cluster(python=str(fake)), TASKS, tmp_path / "run", tmp_path)
    program = (
        "import sys; from pathlib import Path; from pipetune.scaling.launch import read_launch, run_here\n"
        "run_here(read_launch(Path(sys.argv[1])), lambda task: None)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "run")])
    wait_until((tmp_path / "ran").exists, 30)
    process.kill()
    process.wait()
    wait_until((tmp_path / "saved").exists, 30)
    wait_until((tmp_path / "run" / "task-0.code").exists, 30)
    assert (tmp_path / "run" / "task-0.code").read_text() == "143\n"


def test_a_dropped_connection_ends_the_task_that_runs_here(tmp_path: Path) -> None:
    """Or the same command, started again, would measure beside it."""
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/bash\ntrap 'touch \"$PWD/saved\"; exit 143' TERM\n"
                    'touch "$PWD/ran"\nfor n in {1..600}; do sleep 0.05; done\n')  # fmt: skip
    fake.chmod(0o755)
    (tmp_path / "cluster.toml").write_text(f'python = "{fake}"\n')
    words = ["launch", "--cluster", "cluster.toml", "--local", "--out", "run", "--", "sweep", "--dataset", "/d"]
    program = (
        "import signal, sys\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests may run below nohup
        f"from pipetune.__main__ import main\nsys.argv = ['pipetune', *{words}]\nmain()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 30
    while not (tmp_path / "ran").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) == 129
    assert (tmp_path / "saved").exists()


def test_the_same_array_goes_on_here_and_another_does_not(tmp_path: Path, sbatch: Path) -> None:
    folder = tmp_path / "run"
    assert not is_begun(Cluster(), TASKS, folder, tmp_path)
    lay_out(Cluster(), TASKS, folder, tmp_path)
    assert new_folder(folder, datetime(2026, 1, 2)) == folder
    assert is_begun(Cluster(), TASKS, folder, tmp_path)
    with pytest.raises(UsageError, match="has another array"):
        is_begun(Cluster(), TASKS[:2], folder, tmp_path)
    submit(read_launch(folder))
    with pytest.raises(UsageError, match=r"was submitted already, as job 42.*--collect"):
        is_begun(Cluster(), TASKS, folder, tmp_path)
