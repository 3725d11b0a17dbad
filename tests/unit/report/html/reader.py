"""Reads a page as a browser would, as far as the tests of this folder ask."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

EVIL = "<script>alert(1)</script>\"'&"


class Page(HTMLParser):
    """Tags, text and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.scripts, self._script = "", [""], False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = tag == "script"
        if self._script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._script = self._script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[-1] += data
        else:
            self.text += data

    def embedded(self) -> Any:
        return json.loads(next(script for script in self.scripts if script.startswith("{")))
