"""What the page on security says is so."""

from __future__ import annotations

from docs.parts import limits
from pipetune.datasets import folder_walk, image_header, usable_image
from pipetune.install import pillow_simd
from pipetune.records.redact import SECRET_NAMES
from tests import ROOT

PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text()


def test_the_limits_are_the_program_s() -> None:
    text = limits.limits()
    for limit in (folder_walk.MAX_WITHOUT_IMAGE, image_header.MAX_PIXELS, image_header.MAX_STEPS):
        assert f"{limit:,}" in text
    assert usable_image.MAX_FILE_BYTES == 64 << 20
    assert "| 64.0 MiB |" in text
    assert text in PAGE
    assert limits.rights() in PAGE
    assert limits.secrets() == ", ".join(f"`{name}`" for name in SECRET_NAMES)


def test_the_number_of_files_that_are_fetched() -> None:
    assert len(pillow_simd.TOOLS) == 2
    assert "one source file and with two build tools" in PAGE


def test_the_notices_of_others_are_where_the_page_says_and_in_the_package() -> None:
    path = "pipetune/decoders/THIRD_PARTY_NOTICES.txt"
    assert path in PAGE
    notices = (ROOT / path).read_text()
    assert "jpeg_roi.c" in notices
    for part in ("Secret Labs AB", "Jeffrey A. Clark", "Permission to use, copy, modify and distribute"):
        assert part in notices
    project = (ROOT / "pyproject.toml").read_text()
    assert f'license-files = ["LICENSE", "{path}"]' in project
    assert '"decoders/*.txt"' in project
