"""mkdocs calls this while it builds the manual: generated parts are put into the pages, Sphinx roles are removed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs import parts

#: ``:class:`Run` `` in a docstring, as mkdocstrings renders it: docstrings are written as for Sphinx.
_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):<code>~?(?:[\w.]*\.)?(\w+)</code>")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in ``<!-- generated: NAME -->``."""
    try:
        return parts.fill(markdown)
    except parts.UnknownPart as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from None


def on_page_content(html: str, **_: Any) -> str:
    """Show what a Sphinx role names as code, and the colons before a block of code as one."""
    return _ROLE.sub(r"<code>\1</code>", html).replace("::</p>", ":</p>")
