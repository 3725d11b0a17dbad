import sys
from types import SimpleNamespace
from typing import Any, Optional

import pytest
import torch

from pipetune.hook import backward
from pipetune.hook.backward import tell_backward, trains_elsewhere


def step(weights: Any) -> Any:
    return (weights * weights).sum()


def test_every_way_of_torch_to_compute_gradients_is_told_until_it_is_ended() -> None:
    functions = (torch.autograd.backward, torch.autograd.grad, torch.Tensor.backward)
    engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    told: list[int] = []
    weights = torch.ones(3, requires_grad=True)
    end = tell_backward(lambda: told.append(1))
    try:
        assert (torch.autograd.backward, torch.autograd.grad, torch.Tensor.backward) == functions, "known by identity"
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
    assert torch.autograd._engine_run_backward is engine  # type: ignore[attr-defined]
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


def test_what_others_have_put_in_its_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    autograd = SimpleNamespace(_engine_run_backward=print)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(autograd=autograd))  # type: ignore[arg-type]
    end = tell_backward(lambda: None)
    autograd._engine_run_backward = repr  # type: ignore[assignment]
    end()
    assert autograd._engine_run_backward is repr


def test_torch_without_that_function_tells_by_the_tensors_method(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    tensor = type("Tensor", (), {"backward": lambda self: None})
    original = tensor.backward  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=tensor))  # type: ignore[arg-type]
    end = tell_backward(lambda: told.append(1))
    tensor().backward()  # type: ignore[attr-defined]
    end()
    tensor().backward()  # type: ignore[attr-defined]
    assert told == [1]
    assert tensor.backward is original  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # type: ignore[arg-type]
    tell_backward(lambda: None)()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="torch does not support TorchScript for Python 3.14 and later")
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_torchscript_compiles_what_computes_gradients_meanwhile() -> None:
    def slope(x: torch.Tensor) -> Optional[torch.Tensor]:  # noqa: UP045
        return torch.autograd.grad([(x * x).sum()], [x])[0]

    end = tell_backward(lambda: None)
    try:
        found = torch.jit.script(slope)(torch.ones(2, requires_grad=True))
    finally:
        end()
    assert found is not None
    assert found.tolist() == [2.0, 2.0]


def test_another_framework_is_known_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in backward._OTHER_FRAMEWORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert not trains_elsewhere()
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())  # type: ignore[arg-type]
    assert trains_elsewhere()
