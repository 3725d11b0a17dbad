from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.datasets.index import ImageSet
from pipetune.datasets.open_dataset import open_dataset
from pipetune.errors import UsageError
from tests.unit.datasets.images import encode


def opened(spec: str, **changes: int) -> ImageSet:
    values = {"seed": 0, "limit_images": 100, "limit_bytes": 2**30, "workers": 1, **changes}
    return open_dataset(spec, **values, progress=None)


def refusal(spec: str) -> str:
    with pytest.raises(UsageError) as caught:
        opened(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_bytes(encode())
    absolute = opened(str(tmp_path / "photos"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert opened("photos") == opened("~/photos") == opened("./photos/") == absolute
    assert (absolute.name, absolute.root) == ("photos", str(tmp_path / "photos"))


@pytest.mark.thorough
def test_a_synthetic_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPETUNE_CACHE_DIR", str(tmp_path))
    made = opened("synthetic:caltech256?n=6&classes=3", limit_images=4)
    assert (made.name, made.found_images, len(made.images)) == ("synthetic:caltech256?n=6&seed=0&classes=3", 6, 4)
    assert made.root.startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("syntetic:caltech256", "synthetic:caltech256"),
        ("synthetic", "synthetic:caltech256"),
        ("Synthetic:imagnet?n=5", "synthetic:imagenet?n=5"),
        ("synth:imagenet", "synthetic:imagenet"),
        ("caltech256", "synthetic:caltech256"),
        ("caltech-256?n=10", "synthetic:caltech256?n=10"),
        ("imagenet_real", "synthetic:imagenet-real"),
    ],
)
def test_a_mistyped_uri_gets_a_hint(spec: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(spec) == f"no such directory: {spec!r}; did you mean {meant}?"


@pytest.mark.parametrize("spec", ["./caltech256", "/data/caltech256", "my-photos", "C:photos"])
def test_other_missing_paths_do_not(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "did you mean" not in refusal(spec)


def test_an_existing_folder_wins_over_a_near_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "caltech256").mkdir()
    (tmp_path / "caltech256" / "1.jpg").write_bytes(encode())
    assert len(opened("caltech256").images) == 1


def test_no_name_at_all() -> None:
    assert "has no name" in refusal("")


def test_unknown_synthetic_names_are_refused() -> None:
    assert "did you mean synthetic:imagenet or " in refusal("synthetic:imagnet")
