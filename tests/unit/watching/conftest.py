from __future__ import annotations

import pytest

from tests.unit.watching.watch_scene import Scene, make_scene


@pytest.fixture
def scene() -> Scene:
    return make_scene()
