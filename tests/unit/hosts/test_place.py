"""Which host this is, by each launcher's variables."""

from __future__ import annotations

import pytest

from pipetune.errors import UsageError
from pipetune.hosts import place
from pipetune.hosts.place import AUTO_HOSTS, HostPlace, find_place, parse_hosts

TORCHRUN = {
    "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "RANK": "1", "WORLD_SIZE": "2",
    "MASTER_ADDR": "n1", "MASTER_PORT": "29400", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip
SLURM = {
    "SLURM_STEP_NODELIST": "n[1-3]", "SLURM_PROCID": "2", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "1",
}  # fmt: skip
RANKS = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "9000"}


def names(text: str) -> tuple[str, ...]:
    assert text == "n[1-3]"
    return ("n1", "n2", "n3")


def test_torchrun_keeps_a_store_which_is_used() -> None:
    assert find_place(AUTO_HOSTS, TORCHRUN) == HostPlace(host=1, hosts=2, address="n1", port=29400, has_store=True)


def test_a_step_of_slurm_has_a_port_of_its_own_on_its_first_host() -> None:
    found = find_place(3, SLURM, names)
    assert found == HostPlace(host=2, hosts=3, address="n1", port=20_000 + 17 * 16 + 1, names=("n1", "n2", "n3"))
    other = find_place(3, {**SLURM, "SLURM_STEP_ID": "2"}, names)
    assert other.port != found.port
    assert found.name_of(1) == "host 2 of 3 (n2)"


def test_the_user_may_name_address_and_port() -> None:
    found = find_place(AUTO_HOSTS, {**SLURM, "MASTER_ADDR": "10.1.1.1", "MASTER_PORT": "4000"}, names)
    assert (found.address, found.port) == ("10.1.1.1", 4000)


def test_any_launcher_of_ranks_will_do() -> None:
    found = find_place(AUTO_HOSTS, RANKS)
    assert found == HostPlace(host=0, hosts=4, address="10.0.0.1", port=9000)
    assert found.name_of(0) == "host 1 of 4"


def test_a_batch_script_is_no_step() -> None:
    batch = {name: value for name, value in SLURM.items() if not name.startswith("SLURM_STEP")}
    with pytest.raises(UsageError, match=r"--hosts auto: no launcher says which host this is; start it once on each"):
        find_place(AUTO_HOSTS, batch, names)


@pytest.mark.parametrize(
    ("env", "how"),
    [
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "8"}, "torchrun --nproc-per-node=1"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "6"}, "srun --ntasks-per-node=1"),
        ({**RANKS, "LOCAL_WORLD_SIZE": "2"}, "one process on each host"),
    ],
)
def test_several_processes_on_a_host_are_refused(env: dict[str, str], how: str) -> None:
    with pytest.raises(UsageError, match=rf"one process on each host, which starts the ranks .*{how}"):
        find_place(AUTO_HOSTS, env, names)


def test_one_host_needs_no_launcher() -> None:
    assert find_place(1, {}).hosts == 1


def test_another_number_of_hosts_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--hosts 4, but this command was started on 2 hosts"):
        find_place(4, TORCHRUN)


@pytest.mark.parametrize("name", ["GROUP_RANK", "MASTER_PORT"])
def test_what_is_no_number_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is 'x', which is no number"):
        find_place(AUTO_HOSTS, {**TORCHRUN, name: "x"})


def test_a_missing_address_is_named() -> None:
    with pytest.raises(UsageError, match="MASTER_ADDR is not set"):
        find_place(AUTO_HOSTS, {**TORCHRUN, "MASTER_ADDR": ""})


def test_a_list_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match=r"names 2 hosts, 3 were started"):
        find_place(AUTO_HOSTS, SLURM, lambda text: ("n1", "n2"))


def test_where_slurm_does_not_tell_the_first_host_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match=r"scontrol does not write out the hosts 'n\[1-3\]'"):
        place.slurm_names("n[1-3]")


def test_with_the_first_host_named_scontrol_is_not_needed() -> None:
    """As in a container that has none."""

    def missing(text: str) -> tuple[str, ...]:
        raise UsageError("scontrol does not write out the hosts", hint="set MASTER_ADDR to the first host's name")

    place = find_place(AUTO_HOSTS, {**SLURM, "MASTER_ADDR": "n1"}, missing)
    assert (place.address, place.names, place.hosts) == ("n1", (), 3)
    assert place.name_of(1) == "host 2 of 3"
    with pytest.raises(UsageError, match="scontrol"):
        find_place(AUTO_HOSTS, SLURM, missing)


@pytest.mark.parametrize(("text", "hosts"), [("auto", AUTO_HOSTS), (" 3 ", 3), ("1", 1)])
def test_a_number_of_hosts(text: str, hosts: int) -> None:
    assert parse_hosts(text) == hosts


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", ""])
def test_no_number_of_hosts(text: str) -> None:
    with pytest.raises(UsageError, match="is no number of hosts"):
        parse_hosts(text)
