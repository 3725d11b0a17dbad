"""The manual builds strictly, and asks for nothing from a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytest.importorskip("mkdocs", reason="pip install '.[docs]'")
pytestmark = pytest.mark.slow

_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*?src=\"?(?P<src>[^\"\s>]+)|<link[^>]*?href=\"?(?P<href>[^\"\s>]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)], cwd=ROOT,
        capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


def test_every_page_is_built(site: Path) -> None:
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert all((site / path).with_suffix(".html").exists() for path in sources)
    assert not list(site.rglob("*.py"))


def test_no_mark_and_no_role_is_left(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert "<!-- generated" not in text
        assert not re.search(r":(?:class|func|meth|mod|data|attr):", text), page.name


def test_nothing_is_fetched_from_a_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        for found in _FETCHED.finditer(page.read_text()):
            target = found["src"] or found["href"]
            assert not target.startswith(("http:", "https:", "//")), f"{page.name}: {target}"
        # The theme's script would load a library for such a diagram.
        assert 'class="mermaid"' not in page.read_text(), page.name
