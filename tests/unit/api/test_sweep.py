from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipetune
from pipetune.errors import UsageError
from pipetune.sweeping import run
from pipetune.sweeping.observer import SweepObserver
from pipetune.sweeping.options import SweepOptions


class Started(Exception):
    """Ends the call at the point where measuring would begin."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []

    def start(*arguments: Any) -> None:
        seen.extend(arguments)
        raise Started

    monkeypatch.setattr(run, "start", start)
    return seen


def test_arguments_reach_the_sweep_as_values(asked: list[Any], tmp_path: Path) -> None:
    with pytest.raises(Started):
        pipetune.sweep(
            tmp_path, backends=["opencv"], workers=range(3), prefetch=[2], budget="2m", timeout=90, max_ram="1GiB",
            max_shm=2**20, vary="none", fix={"transfer": "uint8"}, cheapest="cores,memory", out=tmp_path / "run",
            progress=False,
        )  # fmt: skip
    chosen, out, progress, loader = asked
    assert chosen == SweepOptions(
        dataset=str(tmp_path), backends=("opencv",), workers=(0, 1, 2), prefetch=(2,), budget_s=120.0, timeout_s=90,
        max_ram_bytes=2**30, max_shm_bytes=2**20, vary=(), fix=(("transfer", "uint8"),), cheapest=("cores", "memory"),
    )  # fmt: skip
    assert (out, loader) == (tmp_path / "run", None)
    assert isinstance(progress, SweepObserver)


def test_a_function_is_packed_and_named(asked: list[Any]) -> None:
    def make_loader(num_workers: int) -> list[int]:
        return []

    with pytest.raises(Started):
        pipetune.sweep(make_loader, workers=[0, 1], progress=False)
    chosen, _, _, loader = asked
    assert chosen.dataset.startswith("own:")
    assert "make_loader" in chosen.dataset
    assert isinstance(loader, bytes)


def test_numbers_and_words_are_read_as_the_command_reads_them(asked: list[Any], tmp_path: Path) -> None:
    with pytest.raises(Started):
        pipetune.sweep(tmp_path, workers="1,2", prefetch=2, fix={"reuse_buffers": "no"}, progress=False)
    with pytest.raises(Started):
        pipetune.sweep(tmp_path, workers=4, fix={"reuse_buffers": False}, progress=False)

    assert (asked[0].workers, asked[0].prefetch, asked[4].workers) == ((1, 2), (2,), (4,))
    assert asked[0].fix == asked[4].fix == (("reuse_buffers", False),)


@pytest.mark.parametrize("loader", [{"a": 1}, iter([1]), [1, 2], 7])
def test_what_is_neither_function_nor_folder_nor_command_is_not_gone_through(loader: Any) -> None:
    with pytest.raises(UsageError, match=r"is neither a function, a folder nor a command") as caught:
        pipetune.sweep(loader)
    assert "def make_loader(num_workers)" in str(caught.value.hint)
    if hasattr(loader, "__next__"):
        assert next(loader) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": "soon"}, "--budget: 'soon' is not a valid duration"),
        ({"max_ram": "lots"}, "--max-ram: 'lots' is not a valid size"),
        ({"workers": "a"}, "--workers: 'a' is not a list"),
        ({"batch_size": "auto"}, "--batch-size 'auto' is no number"),
        ({"batch_size": 6.5}, "--batch-size 6.5 is no number"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        pipetune.sweep("/data", **given)
    assert str(caught.value).startswith(said)
    assert caught.value.hint
