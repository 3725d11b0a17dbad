from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipetune.hook import backward
from pipetune.hook.backward import tell_backward, trains_elsewhere


def step(weights: Any) -> Any:
    return (weights * weights).sum()


def test_every_way_of_torch_to_compute_gradients_is_told_until_it_is_ended() -> None:
    originals = (torch.autograd.backward, torch.autograd.grad)
    told: list[int] = []
    weights = torch.ones(3, requires_grad=True)
    end = tell_backward(lambda: told.append(1))
    try:
        step(weights).backward()
        assert len(told) == 1
        (found,) = torch.autograd.grad(step(weights), weights)
        assert len(told) == 2
        assert found.tolist() == weights.grad.tolist() == [2.0, 2.0, 2.0]  # type: ignore[union-attr]
        torch.func.grad(step)(torch.ones(3))
        assert len(told) == 3
        with torch.no_grad():
            step(weights)
        assert len(told) == 3
    finally:
        end()
    assert (torch.autograd.backward, torch.autograd.grad) == originals
    step(weights).backward()
    assert len(told) == 3


def test_gradients_that_fail_are_not_told() -> None:
    told: list[int] = []
    end = tell_backward(lambda: told.append(1))
    try:
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.ones(1).backward()
    finally:
        end()
    assert told == []


def test_what_a_script_has_put_in_its_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    autograd = SimpleNamespace(backward=print)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(autograd=autograd))  # type: ignore[arg-type]
    end = tell_backward(lambda: None)
    autograd.backward = repr  # type: ignore[assignment]
    end()
    assert autograd.backward is repr


def test_another_framework_is_known_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in backward._OTHER_FRAMEWORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert not trains_elsewhere()
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())  # type: ignore[arg-type]
    assert trains_elsewhere()
