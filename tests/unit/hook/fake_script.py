"""A script as :class:`pipetune.hook.session.Session` sees it, with a torch that is none."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook.profile import Profile
from pipetune.hook.session import Session
from pipetune.records.script import LoaderIdentity
from tests.unit.hook.fake_torch import Numbers, loader_module


class Waiting(BaseException):
    """The loop waits for what to measure."""


MEASURE = {
    "type": "measure", "role": "baseline", "settings": {}, "num_workers": 0, "prefetch_depth": 0, "seconds": 60.0,
    "warmup_limit_s": 0.5, "question": None, "starts": 0, "own_workers": 0, "own_epoch_samples": None,
}  # fmt: skip


class FakeChannel:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.sent.append({"type": kind, **fields})

    def receive(self) -> dict[str, Any]:
        if not self.requests:
            raise Waiting
        return self.requests.pop(0)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.sent if message["type"] == kind]


class Script:
    """A script that is measured, with a torch that is none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, profile: Profile | None = None) -> None:
        self.gradients, self.hooks, self.saved = True, [], []  # type: ignore[var-annotated]
        serialization = SimpleNamespace(save=lambda *args: self.saved.append(args))
        torch = SimpleNamespace(
            __version__="9.9", is_grad_enabled=lambda: self.gradients, serialization=serialization,
            save=serialization.save, autograd=SimpleNamespace(_engine_run_backward=print),
            cuda=SimpleNamespace(is_available=lambda: False),
        )  # fmt: skip
        optimizer = SimpleNamespace(register_optimizer_step_post_hook=self.hooks.append)
        for name, stand_in in (("torch", torch), ("torch.optim.optimizer", optimizer)):
            monkeypatch.setitem(sys.modules, name, stand_in)  # type: ignore[arg-type]
        for name in (
            "torch.optim.lr_scheduler",
            "torch.distributed",
            "lightning",
            "pytorch_lightning",
            "transformers",
            "jax",
        ):
            monkeypatch.delitem(sys.modules, name, raising=False)
        self.torch, self.channel, self.module = torch, FakeChannel(), loader_module()
        self.session = Session(self.channel, profile)  # type: ignore[arg-type]
        self.session.on_module(self.module)

    def step(self) -> None:
        for hook in self.hooks:
            hook(None, (), {})

    def loader(self, dataset: Any = None, **options: Any) -> Any:
        return self.module.DataLoader(Numbers(400) if dataset is None else dataset, 4, **options)

    def evaluate(self, loader: Any) -> list[Any]:
        self.gradients = False
        found = list(loader)
        self.gradients = True
        return found

    def train(self, loader: Any) -> list[Any]:
        """Until the loop waits for what to measure, or the epoch ends."""
        found = []
        try:
            for batch in loader:
                found.append(batch)
                self.step()
        except Waiting:
            pass
        return found


#: The loader that ``Script.loader`` makes of numbers in random order.
IDENTITY = LoaderIdentity(
    file=__file__,
    function="Script.loader",
    dataset="tests.unit.hook.fake_torch.Numbers",
    sampler="RandomSampler",
    ordinal=0,
    position=(1, 15),
)
