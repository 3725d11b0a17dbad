from __future__ import annotations

import pytest

from pipetune.errors import UsageError
from pipetune.scaling.tasks import hosts_of, require_one_host, tasks_of

OPTIONS = {
    "dataset": str,
    "ranks": str,
    "device": str,
    "batch-size": int,
    "hosts": str,
    "exact": bool,
    "out": str,
    "json": str,
}


def test_all_combinations_in_the_order_in_which_they_are_given() -> None:
    found = tasks_of(["sweep", "--dataset", "/d"], ["ranks=1, 2", "--device=a100,h100"], OPTIONS)
    assert [task.label for task in found] == [
        "ranks=1, device=a100", "ranks=1, device=h100", "ranks=2, device=a100", "ranks=2, device=h100",
    ]  # fmt: skip
    assert [task.number for task in found] == [0, 1, 2, 3]
    assert found[1].words == ("sweep", "--ranks=1", "--device=h100", "--dataset", "/d")


def test_one_task_without_an_array() -> None:
    (found,) = tasks_of(["sweep", "--dataset", "/d"], [], OPTIONS)
    assert (found.label, found.words) == ("", ("sweep", "--dataset", "/d"))


def test_the_options_of_a_script_are_its_own() -> None:
    (one, _) = tasks_of(["sweep", "--", "python", "train.py", "--out", "x"], ["batch_size=1,2"], OPTIONS)
    assert one.words == ("sweep", "--batch-size=1", "--", "python", "train.py", "--out", "x")


@pytest.mark.parametrize(
    ("command", "array", "said"),
    [
        ([], [], "cannot be launched"),
        (["watch"], [], "pipetune watch cannot be launched"),
        (["sweep", "--out", "x"], [], "a command with --out cannot be launched"),
        (["sweep", "--json=x"], [], "a command with --json cannot be launched"),
        (["sweep"], ["rank=1"], "did you mean 'ranks'"),
        (["sweep"], ["ranks"], "no list of values"),
        (["sweep"], ["ranks="], "no list of values"),
        (["sweep"], ["ranks=1,,2"], "no list of values"),
        (["sweep"], ["ranks=1,1"], "names a value twice"),
        (["sweep"], ["ranks=1", "ranks=2"], "names an option twice"),
        (["sweep", "--ranks", "2"], ["ranks=1,2"], "in the command and in --array"),
        (["sweep"], ["nodes=1,2"], "all tasks of an array have the same number of hosts"),
        (["sweep"], ["out=a,b"], "has no option 'out'"),
        (["sweep"], ["exact=true,false"], "--exact takes no value"),
        (["sweep"], [f"ranks={','.join(map(str, range(2000)))}"], "makes 2,000 tasks"),
    ],
)
def test_what_cannot_be_is_named(command: list[str], array: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tasks_of(command, array, OPTIONS)


@pytest.mark.parametrize(
    ("words", "hosts"),
    [([], 1), (["--hosts", "4"], 4), (["--hosts=2"], 2), (["--", "python", "train.py", "--hosts", "8"], 1)],
)
def test_hosts_of_a_task(words: list[str], hosts: int) -> None:
    found = tasks_of(["sweep", *words], ["ranks=1,2"], OPTIONS)
    assert hosts_of(found) == hosts
    if hosts > 1:
        with pytest.raises(UsageError, match=rf"--hosts {hosts} cannot be had on Kubernetes"):
            require_one_host(found, "on Kubernetes")
    else:
        require_one_host(found, "on Kubernetes")


def test_tasks_of_an_array_have_the_same_number_of_hosts() -> None:
    with pytest.raises(UsageError, match=r"launch an array for each number, with --hosts in the command"):
        hosts_of(tasks_of(["sweep"], ["hosts=1,2"], OPTIONS))
    with pytest.raises(UsageError, match=r"--hosts auto in an array; write the number"):
        hosts_of(tasks_of(["sweep", "--hosts", "auto"], [], OPTIONS))
