from __future__ import annotations

import ast
import importlib.metadata
from pathlib import Path

import pytest

from pipetune import registry
from pipetune.errors import UsageError
from pipetune.records.sweep import Candidate
from pipetune.registry import (
    BACKENDS,
    DALI,
    DEFAULT_BACKEND,
    LOADERS,
    OWN,
    THREADS,
    TORCH,
    USER,
    Backend,
    find_backend,
    installed_version,
    loader_for,
    loaders_of,
    min_workers,
    native_workers,
)

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
        module = backend.module or LOADERS[str(backend.loader)].module
        same = [one.name for one in BACKENDS.values() if one.on_cpu == name]  # the same library, by its other name
        assert module.rpartition(".")[2] in [other.replace("-", "_") for other in (name, *same)]
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


def test_loaders_by_name() -> None:
    assert all(loader.name == name for name, loader in LOADERS.items())
    assert [loader.name for loader in loaders_of(BACKENDS["opencv"])] == [TORCH, THREADS]
    assert [loader.name for loader in loaders_of(BACKENDS["torchvision"])] == [TORCH]
    assert [loader.name for loader in loaders_of(BACKENDS["dali"])] == [DALI]
    assert [loader.name for loader in loaders_of(OWN)] == [USER]
    assert (min_workers(BACKENDS["opencv"]), min_workers(BACKENDS["dali"])) == (0, 1)
    assert (native_workers(BACKENDS["opencv"]), native_workers(BACKENDS["dali"])) == (False, True)


@pytest.mark.parametrize(
    ("backend", "chosen", "workers", "loader"),
    [
        ("opencv", "torch", 2, TORCH), ("opencv", "threads", 2, THREADS), ("opencv", "threads", 0, TORCH),
        ("torchvision", "threads", 2, TORCH), ("opencv", "dali", 2, TORCH), ("dali", "threads", 2, DALI),
        ("own", "torch", 2, USER), ("opencv", "of a newer version", 2, TORCH),
    ],
)  # fmt: skip
def test_a_candidates_loader(backend: str, chosen: str, workers: int, loader: str) -> None:
    candidate = Candidate(
        backend=backend, num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=4, loader=chosen
    )
    assert loader_for(candidate).name == loader


def test_a_candidate_has_the_only_loader_of_its_backend() -> None:
    for backend in (*BACKENDS.values(), OWN):
        candidate = Candidate(backend=backend.name, num_workers=1, prefetch_depth=2, batch_size=4)
        assert candidate.loader == loaders_of(backend)[0].name


#: Where a backend may be named: the tables, what decodes, what installs a library, which versions a host has, which
#: libraries stand in a stack, and the stored candidates of earlier versions.
MAY_NAME = (
    "registry.py", "decoders/", "loaders/", "install/", "machine/host.py", "sampler/stacks/activity.py",
    "records/candidate.py",
)  # fmt: skip
#: Names that are also those of packages with other uses.
PACKAGES = {"torchvision"}


def test_nothing_else_names_a_backend() -> None:
    root = Path(registry.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno} {node.value}"
        for path in sorted(root.rglob("*.py"))
        if not str(path.relative_to(root)).startswith(MAY_NAME)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in ({*BACKENDS} - PACKAGES)
    ]
    assert found == []
