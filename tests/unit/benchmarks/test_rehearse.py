"""What a rehearsal complains of, and what its environment is made from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.rehearse.checks import EMULATED, list_complaints
from tests.rehearse.environment import IMAGE, link_libraries, read_constraints


def make_item(reason: str, need: str | None = None) -> dict[str, Any]:
    return {"what": "rates", "reason": reason, "command": "", "need": need}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({}, []),
        ({"not_proven": [make_item("the device is emulated")]}, []),
        ({"not_proven": [make_item("dali is not installed", "dali")]}, []),
        (
            {"not_proven": [make_item("py-spy is not installed", "py-spy")]},
            ["decode: py-spy is missing: py-spy is not installed"],
        ),
        ({"not_proven": [make_item("something broke")]}, ["decode: not proven: rates: something broke"]),
        ({"problems": ["it crashed"]}, ["decode: problem: it crashed"]),
        ({"problems": ["sweep was not done in time (at most 3 s)", "known: 1"]}, []),
    ],
)
def test_a_result(result: dict[str, Any], expected: list[str]) -> None:
    complaints = list_complaints(
        {"decode": result}, stages=["decode"], reasons=EMULATED, missing=["dali"], problems=["^known"]
    )
    assert complaints == expected


def test_a_stage_without_a_result() -> None:
    assert list_complaints({}, stages=["decode"], reasons=(), missing=()) == ["decode has no result"]


def test_constraints_are_those_of_the_project_but_for_the_image() -> None:
    constraints = "torch==2.14.1\ntorchvision==0.29.1\nPillow==13.0.0\n"
    assert read_constraints("torch==2.11.0\npillow\ntorchvision==0.26.0\n", constraints) == "Pillow==13.0.0\n"


def test_the_image_lacks_what_is_carried() -> None:
    names = set(re.findall(r"^[\w-]+", IMAGE.read_text(), re.MULTILINE))
    assert not names & {"msgspec", "platformdirs", "py-spy", "simplejpeg", "google-crc32c", "pydantic"}
    pinned = (ROOT / "constraints.txt").read_text().lower()
    assert [name for name in names if f"\n{name}==" not in pinned.replace("_", "-")] == []


def test_decoders_are_not_linked_into_the_image(tmp_path: Path) -> None:
    nvidia = tmp_path / "nvidia"
    for name in ("cudnn", "cusparselt", "nccl", "nvshmem", "dali", "cu13/include", "cu13/lib"):
        (nvidia / name).mkdir(parents=True)
    for name in ("libcudart.so.13", "libnvjpeg.so.13"):
        (nvidia / "cu13" / "lib" / name).touch()
    link_libraries(nvidia, tmp_path / "target")
    names = {str(path.relative_to(tmp_path / "target")) for path in (tmp_path / "target").rglob("*")}
    assert "cu13/lib/libcudart.so.13" in names
    assert "cu13/include" in names
    assert not names & {"dali", "cu13/lib/libnvjpeg.so.13"}
