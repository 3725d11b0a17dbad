"""NUMA nodes as the kernel lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.machine.numa import cores_near_pci, numa_nodes, parse_cpu_list, side_by_side


def node(folder: Path, number: int, cores: str) -> None:
    (folder / f"node{number}").mkdir()
    (folder / f"node{number}" / "cpulist").write_text(cores)


def test_nodes_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    node(tmp_path, 10, "8-9\n")
    node(tmp_path, 2, "0-3,6\n")
    node(tmp_path, 3, "\n")  # memory without cores
    (tmp_path / "possible").write_text("0-10\n")
    assert numa_nodes(tmp_path) == [{0, 1, 2, 3, 6}, {8, 9}]


def test_what_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    assert numa_nodes(tmp_path / "nowhere") == []
    node(tmp_path, 0, "cores")
    assert numa_nodes(tmp_path) == []


@pytest.mark.parametrize(("text", "cores"), [("0", {0}), ("0-2,5", {0, 1, 2, 5}), ("", set()), ("7-7\n", {7})])
def test_lists_of_cores(text: str, cores: set[int]) -> None:
    assert parse_cpu_list(text) == cores


def test_hardware_threads_of_one_core_are_side_by_side(tmp_path: Path) -> None:
    for core in range(4):  # 0 and 2 are one core, as 1 and 3 are
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 2},{core % 2 + 2}\n")
    assert side_by_side({0, 1, 2, 3}, tmp_path) == [0, 2, 1, 3]
    assert side_by_side({3, 1, 0}, tmp_path) == [0, 1, 3]
    assert side_by_side({5, 4}, tmp_path / "nowhere") == [4, 5]


def test_cores_near_a_pci_device(tmp_path: Path) -> None:
    device = tmp_path / "0000:3b:00.0"
    device.mkdir()
    (device / "local_cpulist").write_text("24-27,72\n")
    assert cores_near_pci("0000:3b:00.0", tmp_path) == {24, 25, 26, 27, 72}
    assert cores_near_pci("0000:3c:00.0", tmp_path) == frozenset()
    assert cores_near_pci("", tmp_path) == frozenset()
