from __future__ import annotations

import importlib.metadata

import pytest

from pipetune.errors import UsageError
from pipetune.registry import BACKENDS, DEFAULT_BACKEND, Backend, find_backend, installed_version

FAKE = Backend(name="fake", module="fake", distributions=("fake-gpu", "fake-cpu"), install="pip install fake-cpu")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    versions: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    return versions


def test_every_backend_is_listed_under_its_own_name_and_can_be_installed() -> None:
    assert DEFAULT_BACKEND in BACKENDS
    for name, backend in BACKENDS.items():
        assert backend.name == name
        assert backend.module.rpartition(".")[2] == name.replace("-", "_")
        assert backend.distributions or backend.find
        assert backend.install.startswith(("pip install ", "pipetune doctor --install "))


def test_find_backend() -> None:
    assert find_backend("opencv") is BACKENDS["opencv"]


def test_a_misspelt_backend_suggests_the_near_ones() -> None:
    with pytest.raises(UsageError) as caught:
        find_backend("open-cv")
    assert str(caught.value) == "unknown backend 'open-cv'; did you mean opencv or opencv-reduced?"


def test_a_wholly_unknown_backend_lists_them_all() -> None:
    with pytest.raises(UsageError) as caught:
        find_backend("zzz")
    for name in BACKENDS:
        assert name in str(caught.value)


def test_no_distribution_installed(installed: dict[str, str]) -> None:
    assert installed_version(FAKE) is None


def test_any_distribution_will_do(installed: dict[str, str]) -> None:
    installed["fake-cpu"] = "1.2"
    assert installed_version(FAKE) == "fake-cpu 1.2"


def test_the_first_distribution_is_preferred(installed: dict[str, str]) -> None:
    installed.update({"fake-cpu": "1.2", "fake-gpu": "3.4"})
    assert installed_version(FAKE) == "fake-gpu 3.4"
