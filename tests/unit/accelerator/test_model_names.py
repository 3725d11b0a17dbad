from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.accelerator.model_names import find_model_names, require_model
from pipetune.errors import UsageError

torchvision = pytest.importorskip("torchvision", reason="what is tested is compared with torchvision")


def test_the_names_are_those_that_torchvision_itself_lists() -> None:
    assert list(find_model_names()) == sorted(torchvision.models.list_models(module=torchvision.models))


def test_without_torchvision_nothing_is_known_and_nothing_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_model_names(tmp_path) == ()
    monkeypatch.setattr("pipetune.accelerator.model_names.find_model_names", lambda: ())
    require_model("resnet5000")


def test_a_mistyped_name_gets_the_near_ones() -> None:
    require_model("resnet50")
    with pytest.raises(UsageError, match="named 'resnet5O'; did you mean resnet50"):
        require_model("resnet5O")
    with pytest.raises(UsageError, match="list_models"):
        require_model("zzzzzzzz")
