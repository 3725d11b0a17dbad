"""Cores of each rank."""

from __future__ import annotations

import pytest

from pipetune.candidates.rank_cores import cores_of_rank

EIGHT = list(range(8))


@pytest.mark.parametrize(("ranks", "each"), [(2, 4), (3, 2), (4, 2), (8, 1)])
def test_even_shares_are_disjoint_neighbours_and_as_many(ranks: int, each: int) -> None:
    """The slowest rank decides, so no rank has fewer than another."""
    shares = [cores_of_rank("even", EIGHT, [], rank, ranks) for rank in range(ranks)]
    assert [len(share or ()) for share in shares] == [each] * ranks
    assert len(frozenset().union(*(share or () for share in shares))) == each * ranks
    assert cores_of_rank("even", [0, 4, 1, 5], [], 0, 2) == {0, 4}  # threads of one core are next to each other


def test_more_ranks_than_cores_share_them_evenly() -> None:
    shares = [cores_of_rank("even", [3, 7], [], rank, 8) for rank in range(8)]
    assert shares == [{3}] * 4 + [{7}] * 4


def test_ranks_of_a_numa_node_share_its_cores() -> None:
    nodes = [{0, 1, 2, 3}, {4, 5, 6, 7}]
    assert [cores_of_rank("numa", EIGHT, nodes, rank, 4) for rank in range(4)] == [nodes[0]] * 2 + [nodes[1]] * 2
    assert cores_of_rank("numa", [0, 1, 5], nodes, 1, 2) == {5}  # of those that the process may use
    assert cores_of_rank("numa", EIGHT, [set(EIGHT)], 0, 2) is None  # one node: nothing to choose
    assert cores_of_rank("numa", [0, 1], nodes, 1, 2) is None


def test_a_rank_has_the_cores_of_the_node_that_its_gpu_is_attached_to() -> None:
    nodes = [{0, 1, 2, 3}, {4, 5, 6, 7}]
    assert cores_of_rank("numa", EIGHT, nodes, 0, 2, near={4, 5, 6, 7}) == nodes[1]
    assert cores_of_rank("numa", [0, 1, 5], nodes, 0, 2, near={4, 5, 6, 7}) == {5}
    assert cores_of_rank("numa", [0, 1, 2, 3, 4], nodes, 1, 2, near={8, 9}) == {4}, "none of them may be used"
    assert cores_of_rank("numa", EIGHT, [set(EIGHT)], 0, 2, near=set(EIGHT)) is None, "one node: nothing to choose"
    assert cores_of_rank("even", EIGHT, nodes, 0, 2, near=nodes[1]) == {0, 1, 2, 3}


@pytest.mark.parametrize(("bind", "ranks"), [("none", 4), ("even", 1), ("numa", 1)])
def test_all_cores_are_a_ranks_unless_it_is_bound(bind: str, ranks: int) -> None:
    assert cores_of_rank(bind, EIGHT, [{0}, {1}], 0, ranks) is None
